"""RemoteSandbox: a sandbox that feels local to a program outside Temporal; the workflow EmberpoolSandboxSession behind
it."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from emberpool.activities import names
from emberpool.pool.model.as_command import as_command
from emberpool.pool.model.binding import Binding, bound_fields
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.command import DEFAULT_OUTPUT_LIMIT, Command, CommandResult
from emberpool.pool.model.errors import SandboxClosed
from emberpool.pool.model.frozen import Frozen, Strict
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.session import (
    MAX_IN_FLIGHT,
    MAX_WAIT_S,
    KillCommand,
    ReadSessionFile,
    SessionAck,
    SessionClosed,
    SessionCommand,
    SessionFile,
    SessionInput,
    SessionOpened,
    SessionUsed,
    SessionWhere,
    StartCommand,
    WaitCommand,
    WhereCommand,
    WriteSessionFile,
)
from emberpool.pool.model.stream import Cursor, OutputRead
from emberpool.worker.remote.errors import typed_failure, typed_fault
from emberpool.worker.remote.files import RemoteFiles
from emberpool.worker.remote.following import follow
from emberpool.workflows.checkpoints import image_of
from emberpool.workflows.session import SESSION_TURNS

Out = TypeVar("Out", bound=Frozen)

TURN_TRIES = 30
"""Times that a call is sent again while the session's workflow continues as new: half a minute in all."""


class RemoteCommand:
    """A command of a session, running or ended. Its id finds it again from another process."""

    def __init__(self, sandbox: "RemoteSandbox", execution_id: str) -> None:
        self._sandbox = sandbox
        self.execution_id = execution_id

    async def poll(self, wait: timedelta = timedelta(0)) -> SessionCommand:
        """Where it stands after at most `wait`: how far its output is while it runs, its result once it has ended."""
        wait_s = min(MAX_WAIT_S, max(0.0, wait.total_seconds()))
        return await self._sandbox.send(
            names.SESSION_WAIT, WaitCommand(execution_id=self.execution_id, wait_s=wait_s), SessionCommand
        )

    async def result(self) -> CommandResult:
        """Wait for its end, by short updates.

        Raises:
            SandboxLost, NoCapacity, ...: why there is no result.
        """
        while True:
            command = await self.poll(timedelta(seconds=MAX_WAIT_S))
            if not command.running:
                return ended(command)

    async def stream(self, cursor: Cursor | None = None) -> AsyncGenerator[OutputRead]:
        """Its output as it comes, from a cursor to the end: nothing lost that was kept, nothing twice, gaps told.

        Raises:
            SandboxLost, NoCapacity, ...: why it has no end.
        """
        where = await self._sandbox.send(
            names.SESSION_WHERE, WhereCommand(execution_id=self.execution_id), SessionWhere
        )
        async with aclosing(follow(self._sandbox.client, where, self._sandbox.task_queue, self._ended, cursor)) as all_:
            async for piece in all_:
                yield piece

    async def _ended(self) -> CommandResult | None:
        command = await self.poll(timedelta(seconds=0.3))
        return None if command.running else ended(command)

    async def kill(self) -> CommandResult:
        """Kill it and all that it started."""
        return ended(
            await self._sandbox.send(names.SESSION_KILL, KillCommand(execution_id=self.execution_id), SessionCommand)
        )


class RemoteSandbox(RemoteFiles):
    """A sandbox of a session. `async with RemoteSandbox.open(...)` closes it; `attach` finds one that goes on."""

    def __init__(
        self, client: Client, session_id: str, given: SessionInput | None = None, task_queue: str = ""
    ) -> None:
        """Use `open` or `attach`."""
        self._client, self.session_id, self._given = client, session_id, given
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._task_queue = given.task_queue if given is not None else task_queue

    @classmethod
    def open(
        cls,
        client: Client,
        *,
        profile: str,
        caller: str,
        name: str = "",
        image: str = "",
        reuse_key: str = "",
        fingerprint: str = "",
        binding: Binding | None = None,
        from_: Checkpoint | None = None,
        idle_timeout: timedelta = timedelta(minutes=15),
        wait_timeout: timedelta = timedelta(minutes=5),
        priority: int = 0,
        task_queue: str = names.DEFAULT_TASK_QUEUE,
    ) -> Self:
        """A sandbox of `profile` for `caller`. Entering starts its session, or joins the caller's one of that name. The
        other arguments are those of `Sandbox.open`, with `idle_timeout` in place of `hold`.

        Args:
            name: names the session among the caller's; default a new one. `session_id` then is what `attach` takes.
            binding: code, dependencies and secrets, bound before the first call.
            from_: what a sandbox of the same image had changed, restored before that; see `checkpoint`.
            idle_timeout: the session closes itself after this long without a call or a running command.
        """
        given = checked(
            SessionInput,
            profile=profile,
            caller=caller,
            image=image_of(from_, image),
            checkpoint=from_,
            reuse_key=reuse_key,
            fingerprint=fingerprint,
            wait_timeout_s=wait_timeout.total_seconds(),
            priority=priority,
            idle_timeout_s=idle_timeout.total_seconds(),
            task_queue=task_queue,
            **bound_fields(binding),
        )
        return cls(client, f"emberpool-session/{caller}/{name or uuid.uuid4().hex}", given)

    @classmethod
    def attach(cls, client: Client, session_id: str, *, task_queue: str = names.DEFAULT_TASK_QUEUE) -> Self:
        """The sandbox of a session that runs; nothing is asked until the first call."""
        return cls(client, session_id, task_queue=task_queue)

    @property
    def task_queue(self) -> str:
        """Name of emberpool's task queues."""
        return self._task_queue

    @property
    def client(self) -> Client:
        """The Temporal client that it speaks through."""
        return self._client

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except SandboxClosed:
            pass  # it was idle for too long, or somebody else closed it

    async def begin(self) -> None:
        """Start the session if this handle was made by `open`, without `async with`: then nothing closes it but
        `close` or its idle time-out."""
        if self._given is None:
            return
        await self._client.start_workflow(
            names.SANDBOX_SESSION,
            self._given,
            id=self.session_id,
            task_queue=self._given.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"sandbox of {self._given.caller}",
        )

    async def claim(self) -> SessionOpened:
        """Claim the pod now. Optional: the first call claims it otherwise."""
        return await self.send(names.SESSION_OPEN, None, SessionOpened)

    async def used(self) -> SessionUsed:
        """Ask the session for its sandbox, and tell it of a call."""
        return await self.send(names.SESSION_USE, None, SessionUsed)

    async def run(
        self,
        command: Command | str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        time_limit: timedelta | None = None,
        output_limit: int = DEFAULT_OUTPUT_LIMIT,
    ) -> CommandResult:
        """Run a command to its end, as `Sandbox.run` does in a workflow. A short one is a single update."""
        whole = as_command(command, env=env, cwd=cwd, stdin=stdin, time_limit=time_limit, output_limit=output_limit)
        started = await self._start(whole, MAX_WAIT_S, uuid.uuid4().hex)
        return await RemoteCommand(self, started.execution_id).result() if started.running else ended(started)

    async def start(
        self,
        command: Command | str | Sequence[str],
        *,
        execution_id: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        time_limit: timedelta | None = None,
        output_limit: int = DEFAULT_OUTPUT_LIMIT,
    ) -> RemoteCommand:
        """Start a command and return at once. A known `execution_id` starts nothing and finds that command."""
        whole = as_command(command, env=env, cwd=cwd, stdin=stdin, time_limit=time_limit, output_limit=output_limit)
        started = await self._start(whole, 0.0, execution_id or uuid.uuid4().hex)
        return RemoteCommand(self, started.execution_id)

    def command(self, execution_id: str) -> RemoteCommand:
        """A command that was started before, perhaps by another process."""
        return RemoteCommand(self, execution_id)

    async def write_file(self, path: str, data: str | bytes, *, mode: int = 0o644) -> None:
        """Write one file whole; at most 1 MiB."""
        raw = data.encode() if isinstance(data, str) else data
        given = checked(WriteSessionFile, path=path, data=raw, mode=mode)
        await self.send(names.SESSION_WRITE, given, SessionAck)

    async def read_file(self, path: str, *, limit: int = 1024 * 1024) -> bytes:
        """Read one regular file of at most `limit` bytes.

        Raises:
            SandboxFileError: it does not exist, is larger, or is no regular file.
        """
        given = checked(ReadSessionFile, path=path, limit=limit)
        return (await self.send(names.SESSION_READ, given, SessionFile)).data

    async def close(self) -> SessionClosed:
        """End the session and give its pod back; what still runs in it is killed."""
        self._used = None
        return await self.send(names.SESSION_CLOSE, None, SessionClosed)

    async def _start(self, command: Command, wait_s: float, execution_id: str) -> SessionCommand:
        given = checked(StartCommand, execution_id=execution_id, command=command, wait_s=wait_s)
        return await self.send(names.SESSION_START, given, SessionCommand)

    async def send(self, update: str, given: Strict | None, result: type[Out]) -> Out:
        """Send one update and wait for its answer.

        Raises:
            SandboxClosed: the session has ended.
            EmberpoolError: what the update failed with.
        """
        update_id = uuid.uuid4().hex
        for attempt in range(TURN_TRIES):
            try:
                async with self._in_flight:
                    return await self._update(update, given, result, update_id)
            except _SessionTurns:
                await asyncio.sleep(min(1.0, 0.05 * 2**attempt))
        raise SandboxClosed(self.session_id)

    async def _update(self, update: str, given: Strict | None, result: type[Out], update_id: str) -> Out:
        # No run id: the session may have continued as new meanwhile.
        handle = self._client.get_workflow_handle(self.session_id)
        arguments: list[Any] = [] if given is None else [given]
        try:
            answer: Out = await handle.execute_update(  # pyright: ignore[reportUnknownMemberType]
                update, args=arguments, id=update_id, result_type=result
            )
            return answer
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == SESSION_TURNS:
                raise _SessionTurns from error
            if isinstance(cause, ApplicationError) and cause.type == "AcceptedUpdateCompletedWorkflow":
                raise SandboxClosed(self.session_id) from error
            raise typed_failure(error) or error from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise SandboxClosed(self.session_id) from error
            raise


def ended(command: SessionCommand) -> CommandResult:
    """The result of a command that has ended.

    Raises:
        SandboxLost, NoCapacity, ...: why it has none.
    """
    if command.result is None:
        raise typed_fault(command.fault) if command.fault else RuntimeError("an ended command has a result or a fault")
    return command.result


class _SessionTurns(Exception):
    """The session's workflow continues as new: the same call, again."""
