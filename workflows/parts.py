"""What a sandbox has besides commands and files: processes, shells, ports, checkpoints, in a workflow or outside."""

from collections.abc import Sequence
from datetime import timedelta

from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.port import PortAnswer, PortRequest
from emberpool.workflows.checkpoints import CHECKPOINT_LIMIT, save_checkpoint
from emberpool.workflows.invoker import Invoker
from emberpool.workflows.ports import request_port
from emberpool.workflows.processes import Processes
from emberpool.workflows.shell import Shell


class SandboxParts(Invoker):
    """Part of Sandbox and of RemoteSandbox."""

    @property
    def processes(self) -> Processes:
        """Its background processes."""
        return Processes(self)

    def shell(self, program: str = "/bin/sh", *, cwd: str | None = None, shell_id: str | None = None) -> Shell:
        """A shell that lives on between commands; it starts with its first. A `shell_id` finds one again."""
        return Shell.of(self, program, cwd, shell_id)

    async def checkpoint(self, *, time_limit: timedelta = CHECKPOINT_LIMIT) -> Checkpoint:
        """Save all that its jobs have changed in its files, for `open(from_=...)`: as often as you like, in several at
        once. Running processes and /dev/shm are no part of it; it goes on as before.

        Raises:
            SandboxFileError: a file changed while it was read; the error names it.
            InvalidInput: the worker has no blob store.
        """
        return await save_checkpoint(self, time_limit)

    async def request_port(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        time_limit: timedelta = timedelta(seconds=30),
    ) -> PortAnswer:
        """An HTTP request to a server in the sandbox; `path` is percent-encoded, with its query. A retry repeats it.

        Raises:
            InvalidInput: an argument is wrong; nothing was sent.
            PortUnreachable: no server answered.
        """
        fields = {"method": method, "headers": tuple(headers), "body": body, "time_limit_s": time_limit.total_seconds()}
        return await request_port(self, checked(PortRequest, port=port, path=path, **fields))
