"""The sandbox handle: what workflow code opens, runs commands in, and leaves.

The handle is lazy: the first call claims the pod, in the same activity. Concurrent first calls share it, since the
request id is made with the handle.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Self

from temporalio.workflow import ActivityConfig

from emberpool.activities import names
from emberpool.activities.current import CURRENT
from emberpool.activities.models import (
    MAX_FILE_BYTES,
    BindInput,
    CallInput,
    CallOutput,
    ReadFileInput,
    ReadFileOutput,
    RunInput,
    RunOutput,
    WatchInput,
    WatchOutput,
    WriteFileInput,
)
from emberpool.pool.model.as_command import as_command
from emberpool.pool.model.binding import Binding
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.claim import ClaimSpec, SandboxRef
from emberpool.pool.model.command import DEFAULT_OUTPUT_LIMIT, Command, CommandResult
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.rollout import TextFile
from emberpool.workflows.binding import bind_entered, bound_summary, prepare
from emberpool.workflows.checkpoints import image_of, restore_entered
from emberpool.workflows.handle import Handle
from emberpool.workflows.holder import new_request, this_workflow
from emberpool.workflows.parts import SandboxParts
from emberpool.workflows.transfers import SandboxFiles, check_name

MARGIN = timedelta(seconds=60)
"""What a command's activity may take beyond the command's own limit: claim, kill, transfer."""


class Sandbox(SandboxFiles, SandboxParts, Handle):
    """One sandbox of one workflow. Use `async with Sandbox.open(...) as sb`; leaving releases it, whatever happened."""

    _binding: Binding | None = None
    _from: Checkpoint | None = None

    @classmethod
    def open(
        cls,
        *,
        profile: str,
        caller: str,
        image: str = "",
        reuse_key: str = "",
        fingerprint: str = "",
        binding: Binding | None = None,
        from_: Checkpoint | None = None,
        hold: timedelta = timedelta(minutes=15),
        wait_timeout: timedelta = timedelta(minutes=5),
        priority: int = 0,
        task_queue: str = names.DEFAULT_TASK_QUEUE,
    ) -> Self:
        """A sandbox of `profile` for `caller`, whose used pods it may get and whose next sandbox may get its pod.

        Args:
            image: a name of the profile's images; default its base image.
            reuse_key: splits the caller's pods further; a new key each time means a fresh pod each time.
            fingerprint: hash of what survives a recycle; a pod with the same is preferred. Default: that of `binding`.
            binding: code, dependencies and secrets, bound as the sandbox is entered.
            from_: what a sandbox of the same image had changed, restored as this one is entered, before `binding`.
            hold: how long the sandbox outlives the end of each call, so that a model may think meanwhile.
            wait_timeout: how long the first call may stand in line before NoCapacity.
            priority: higher goes first among this caller's requests.

        Raises:
            InvalidInput: an argument can never work; it is named.
        """
        spec = checked(
            ClaimSpec,
            profile=profile,
            caller=caller,
            image=image_of(from_, image),
            reuse_key=reuse_key,
            fingerprint=fingerprint or (binding.fingerprint() if binding else ""),
            hold_s=hold.total_seconds(),
            wait_timeout_s=wait_timeout.total_seconds(),
            priority=priority,
        )
        sandbox = cls(SandboxRef(request_id=new_request(), spec=spec, holder=this_workflow()), task_queue)
        sandbox._binding, sandbox._from = binding, from_
        return sandbox

    @classmethod
    def adopt(cls, ref: SandboxRef, *, task_queue: str = names.DEFAULT_TASK_QUEUE) -> Self:
        """Take over a sandbox that another run or workflow detached; entering tells the pool its new holder."""
        return cls(ref.model_copy(update={"holder": this_workflow()}), task_queue, adopt=True)

    @asynccontextmanager
    async def current(self) -> AsyncGenerator[Self]:
        """Make this the sandbox that tools for agents find, here and in tasks that start here. It claims first.

        Activities that start here carry the sandbox's ref in a header. Blocks may nest; the innermost counts.
        """
        if self.lease is None:
            await self.claim()
        token = CURRENT.set(self)
        try:
            yield self
        finally:
            # A workflow that is being evicted ends its generators in a context where nothing was set.
            with suppress(ValueError):
                CURRENT.reset(token)

    async def run(
        self,
        command: Command | str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        time_limit: timedelta | None = None,
        output_limit: int = DEFAULT_OUTPUT_LIMIT,
        replay_safe: bool = False,
        summary: str | None = None,
        config: ActivityConfig | None = None,
    ) -> CommandResult:
        """Run a command: a text for `/bin/sh -c`, a list without a shell, or a whole Command (then no other argument).

        Returns its end, also when it failed or its time limit passed; `.check()` raises instead.

        Raises:
            InvalidInput: the command can never be started (a NUL byte, a negative limit); nothing was claimed.
            SandboxLost, SandboxClosed, NoCapacity: see emberpool.pool.model.errors.
        """
        whole = as_command(
            command,
            env=env,
            cwd=cwd,
            stdin=stdin,
            time_limit=time_limit,
            output_limit=output_limit,
            replay_safe=replay_safe,
        )
        limit: ActivityConfig = {"start_to_close_timeout": timedelta(seconds=whole.time_limit_s) + MARGIN}
        output = await self.invoke(
            names.RUN_COMMAND,
            lambda ref: RunInput(ref=ref, command=whole),
            RunOutput,
            summary=summary or f"run: {whole.title()}",
            queue=self._task_queue,
            config={**limit, **(config or {})},
        )
        if output.result is None:
            raise RuntimeError("an answered command has a result")
        return output.result

    async def write_file(self, path: str, data: str | bytes, *, mode: int = 0o644) -> None:
        """Write one file whole; parents are made. A relative path is taken from /work.

        Raises:
            InvalidInput: over 1 MiB (`upload` takes files of any size), or an impossible path.
            SandboxFileError: the path is a folder or a device.
        """
        raw = data.encode() if isinstance(data, str) else data
        check_name(path)
        if len(raw) > MAX_FILE_BYTES:
            raise InvalidInput("data", f"{len(raw)} bytes are over the {MAX_FILE_BYTES} of one payload: use `upload`")
        await self.invoke(
            names.WRITE_FILE,
            lambda ref: WriteFileInput(ref=ref, path=path, data=raw, mode=mode),
            CallOutput,
            summary=f"write: {path[:80]}",
        )

    async def read_file(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Read one regular file of at most `limit` bytes; `download` takes files of any size.

        Raises:
            SandboxFileError: it does not exist, is larger, or is no regular file.
        """
        check_name(path)
        if not 0 < limit <= MAX_FILE_BYTES:
            raise InvalidInput("limit", f"must lie between 1 and {MAX_FILE_BYTES} bytes: use `download` for more")
        output = await self.invoke(
            names.READ_FILE,
            lambda ref: ReadFileInput(ref=ref, path=path, limit=limit),
            ReadFileOutput,
            summary=f"read: {path[:80]}",
        )
        return output.data

    async def bind(
        self,
        *,
        env: Mapping[str, str] | None = None,
        files: Sequence[TextFile] = (),
        binding: Binding | None = None,
    ) -> None:
        """Bind code, dependencies and secrets, an environment for every later command, and files, in one call.

        Raises InvalidInput if something of it can never be had.
        """
        if binding is not None and not binding.empty:
            await prepare(self, binding, env=env or {}, files=files)
            return
        await self.invoke(
            names.BIND_JOB,
            lambda ref: BindInput(ref=ref, env=dict(env or {}), files=tuple(files)),
            CallOutput,
            summary=bound_summary([file.path for file in files], len(env or {})),
        )

    async def claim(self) -> None:
        """Claim the pod now, without a command. Optional: the first call claims it otherwise."""
        await self.invoke(names.OPEN_SANDBOX, lambda ref: CallInput(ref=ref), CallOutput, summary="open sandbox")

    async def watch(self, execution_id: ExecutionId) -> WatchOutput:
        """How far a command is that another task of the workflow runs; its id is `ids.activity_execution`'s."""
        return await self.invoke(
            names.WATCH_COMMAND,
            lambda ref: WatchInput(ref=ref, execution_id=execution_id),
            WatchOutput,
            summary="look at a running command",
        )

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._from is not None:
            await restore_entered(self, self._from)
        if self._binding is not None:
            await bind_entered(self, self._binding)
        return self
