"""What a sandbox has besides commands and files: processes, shells and ports, in a workflow or outside."""

from collections.abc import Sequence
from datetime import timedelta

from emberpool.pool.model.inputs import checked
from emberpool.pool.model.port import PortAnswer, PortRequest
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
