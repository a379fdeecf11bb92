"""SandboxSession: a sandbox that callers outside Temporal drive by updates.

Updates only start things or wait for a little while: a workflow holds at most ten at a time, and an update that waits
for a long command would take one of them for all that time. So a command runs as a task of the workflow, and who wants
its end asks again and again.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from emberpool.activities import names
from emberpool.activities.errors import to_temporal, translated
from emberpool.pool.model.command import Command, CommandResult, Outcome
from emberpool.pool.model.errors import EmberpoolError, InvalidInput, SandboxClosed, SandboxLost
from emberpool.pool.model.ids import activity_execution
from emberpool.pool.model.session import (
    CommandFault,
    KillCommand,
    ReadSessionFile,
    SessionAck,
    SessionCarried,
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
from emberpool.workflows.checkpoints import restore
from emberpool.workflows.sandbox import Sandbox

SESSION_TURNS = "SessionTurns"
"""Type of the rejection while the workflow continues as new: the client tries again."""
HOLD_SLACK = timedelta(seconds=60)
"""The sandbox's hold outlives the session's idle time, so that the session closes it and not the expiry."""
CARRIED_BYTES = 512 * 1024
"""Output of ended commands that a continue-as-new carries over, in base64 0.7 MiB: well under the payload limit."""
KEPT = 100
"""Ended commands that are remembered."""


@workflow.defn(name=names.SANDBOX_SESSION)
class SandboxSession:
    """Lives until it is closed, cancelled, or idle for too long; leaving gives the pod back."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        self._given = given
        self._sandbox = _sandbox(given)
        carried = given.carried or SessionCarried()
        self._commands = {command.execution_id: command for command in carried.ended}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bound = (given.binding().empty and given.checkpoint is None) or carried.bound
        self._binding = asyncio.Lock()
        self._updates = 0
        self._last = workflow.now()
        self._closing = False
        self._sealed = False
        self._left = False

    @workflow.run
    async def run(self, given: SessionInput) -> SessionClosed:
        """Wait for the end, or for a good moment to continue as new."""
        with suppress(SandboxLost):  # whoever uses it next is told
            await self._sandbox.__aenter__()
        try:
            if await self._until_over():
                await self._turn()
        finally:
            await self._end_commands()
            await self._sandbox.close()
            self._left = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._closed()

    @workflow.update(name=names.SESSION_OPEN)
    async def open(self) -> SessionOpened:
        """Claim the pod now; otherwise the first call does."""
        with self._serving():
            await self._claimed()
            lease = self._sandbox.lease
            return SessionOpened(
                pod=lease.pod if lease else "",
                source=lease.source if lease else None,
                ttfc_s=self._sandbox.ttfc_s,
            )

    @workflow.update(name=names.SESSION_USE)
    async def use(self) -> SessionUsed:
        """The sandbox, for calls that its caller makes by activities of its own; to this workflow they are one call."""
        with self._serving():
            await self._claimed()
            return SessionUsed(ref=self._sandbox.ref, idle_timeout_s=self._given.idle_timeout_s)

    @workflow.update(name=names.SESSION_START)
    async def start(self, start: StartCommand) -> SessionCommand:
        """Start a command, unless its id is known, and tell where it stands after at most `wait_s`."""
        with self._serving():
            if start.execution_id not in self._commands:
                self._commands[start.execution_id] = SessionCommand(execution_id=start.execution_id)
                run = self._run(start.execution_id, start.command)
                self._tasks[start.execution_id] = asyncio.create_task(run)
            return await self._stands(start.execution_id, start.wait_s)

    @workflow.update(name=names.SESSION_WAIT)
    async def wait(self, wait: WaitCommand) -> SessionCommand:
        """Where a command stands after at most `wait_s`, with the end of its output while it runs."""
        with self._serving():
            command = await self._stands(wait.execution_id, wait.wait_s)
            return await self._watched(command) if command.running else command

    @workflow.update(name=names.SESSION_WHERE)
    async def where(self, where: WhereCommand) -> SessionWhere:
        """Where a command's output can be followed while it runs, by activities that leave nothing in this history."""
        with self._serving():
            info, activity_id = workflow.info(), _activity_id(self._known(where.execution_id).execution_id)
            execution = activity_execution(info.namespace, info.workflow_id, info.run_id, activity_id)
            return SessionWhere(ref=self._sandbox.ref, execution=execution)

    @workflow.update(name=names.SESSION_KILL)
    async def kill(self, kill: KillCommand) -> SessionCommand:
        """Kill a command and all that it started; one that has ended stays as it is."""
        with self._serving():
            command = self._known(kill.execution_id)
            task = self._tasks.get(kill.execution_id)
            if task is not None:
                task.cancel()
                await workflow.wait_condition(lambda: kill.execution_id not in self._tasks)
                command = self._known(kill.execution_id)
            return command

    @workflow.update(name=names.SESSION_WRITE)
    async def write_file(self, write: WriteSessionFile) -> SessionAck:
        """Write one file whole."""
        with self._serving():
            await self._bind()
            await self._sandbox.write_file(write.path, write.data, mode=write.mode)
            return SessionAck()

    @workflow.update(name=names.SESSION_READ)
    async def read_file(self, read: ReadSessionFile) -> SessionFile:
        """Read one regular file."""
        with self._serving():
            await self._bind()
            return SessionFile(data=await self._sandbox.read_file(read.path, limit=read.limit))

    @workflow.update(name=names.SESSION_CLOSE)
    async def close(self) -> SessionClosed:
        """End what still runs, give the pod back, and end; answered when that is done."""
        with self._serving():
            self._closing = True
            await workflow.wait_condition(lambda: self._left)
            return self._closed()

    @open.validator
    def _may_open(self) -> None:
        self._check_takes_calls()

    @use.validator
    def _may_use(self) -> None:
        self._check_takes_calls()

    @start.validator
    def _may_start(self, start: StartCommand) -> None:
        self._check_takes_calls()
        if self._turns():  # no new command until the next run, so that this one comes to an end
            raise ApplicationError("the session continues as new; try again", type=SESSION_TURNS)

    @wait.validator
    def _may_wait(self, wait: WaitCommand) -> None:
        self._check_takes_calls()

    @where.validator
    def _may_ask_where(self, where: WhereCommand) -> None:
        self._check_takes_calls()

    @kill.validator
    def _may_kill(self, kill: KillCommand) -> None:
        self._check_takes_calls()

    @write_file.validator
    def _may_write(self, write: WriteSessionFile) -> None:
        self._check_takes_calls()

    @read_file.validator
    def _may_read(self, read: ReadSessionFile) -> None:
        self._check_takes_calls()

    @close.validator
    def _may_close(self) -> None:
        if self._sealed:
            raise ApplicationError("the session continues as new; try again", type=SESSION_TURNS)

    def _check_takes_calls(self) -> None:
        if self._closing:
            raise to_temporal(SandboxClosed(workflow.info().workflow_id))
        self._may_close()

    @contextmanager
    def _serving(self) -> Generator[None]:
        self._updates += 1
        self._last = workflow.now()
        try:
            with translated():
                yield
        finally:
            self._last = workflow.now()

    async def _claimed(self) -> None:
        await self._bind()
        if self._sandbox.lease is None:
            await self._sandbox.claim()

    async def _bind(self) -> None:
        """Restore and bind before the first call; a call that finds it in vain has its error, and the next one tries
        again."""
        if self._bound:
            return
        async with self._binding:
            if not self._bound:
                if self._given.checkpoint is not None:
                    await restore(self._sandbox, self._given.checkpoint)
                if not self._given.binding().empty:
                    await self._sandbox.bind(binding=self._given.binding())
                self._bound = True

    async def _run(self, execution_id: str, command: Command) -> None:
        result: CommandResult | None = None
        fault: CommandFault | None = None
        try:
            await self._bind()
            result = await self._sandbox.run(command, config={"activity_id": _activity_id(execution_id)})
        except EmberpoolError as error:
            crossed = to_temporal(error)
            details = tuple(_json(value) for value in crossed.details)
            fault = CommandFault(type=crossed.type or "", message=crossed.message, details=details)
        except (ActivityError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                result = CommandResult(outcome=Outcome.CANCELLED)
            else:
                fault = CommandFault(type=type(error).__name__, message=f"{error}: {error.__cause__}"[:2000])
        self._last = workflow.now()
        self._commands.pop(execution_id, None)  # to the end: the oldest are forgotten first
        self._commands[execution_id] = SessionCommand(
            execution_id=execution_id, running=False, result=result, fault=fault
        )
        self._tasks.pop(execution_id, None)
        self._forget()

    def _forget(self) -> None:
        ended = [command.execution_id for command in self._commands.values() if not command.running]
        for execution_id in ended[: max(0, len(ended) - KEPT)]:
            del self._commands[execution_id]

    async def _stands(self, execution_id: str, wait_s: float) -> SessionCommand:
        self._known(execution_id)
        if wait_s > 0:
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: execution_id not in self._tasks, timeout=wait_s, timeout_summary="wait for a command's end"
                )
        return self._known(execution_id)

    def _known(self, execution_id: str) -> SessionCommand:
        command = self._commands.get(execution_id)
        if command is None:
            raise InvalidInput("execution_id", f"{execution_id!r} is not one of this session, or was long ago")
        return command

    async def _watched(self, command: SessionCommand) -> SessionCommand:
        info = workflow.info()
        seen = await self._sandbox.watch(
            activity_execution(info.namespace, info.workflow_id, info.run_id, _activity_id(command.execution_id))
        )
        now = self._known(command.execution_id)
        if not now.running:
            return now
        fields = ("elapsed_s", "stdout_tail", "stderr_tail", "stdout_bytes", "stderr_bytes")
        return now.model_copy(update={field: getattr(seen, field) for field in fields})

    async def _until_over(self) -> bool:
        """True when it is time to continue as new, False when the session ends."""
        idle_s = self._given.idle_timeout_s
        while not self._closing:
            if self._may_turn():
                return True
            left_s = idle_s
            if not self._tasks and workflow.all_handlers_finished():
                left_s -= (workflow.now() - self._last).total_seconds()
            if left_s <= 0:
                self._closing = True
                break
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._closing or self._may_turn(), timeout=left_s, timeout_summary="idle time-out"
                )
        return False

    def _turns(self) -> bool:
        return self._updates >= self._given.max_updates or workflow.info().is_continue_as_new_suggested()

    def _may_turn(self) -> bool:
        return self._turns() and not self._tasks

    async def _turn(self) -> None:
        """Continue as new with the sandbox: from here on no update is taken, and the client asks the next run."""
        self._sealed = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        used = self._sandbox.lease is not None or self._given.carried is not None
        ref = self._sandbox.ref if used else None
        if used:
            with suppress(SandboxLost):
                await self._sandbox.detach()
        carried = SessionCarried(ref=ref, ended=_newest(list(self._commands.values())), bound=self._bound)
        workflow.continue_as_new(self._given.model_copy(update={"carried": carried}))

    async def _end_commands(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _closed(self) -> SessionClosed:
        recycled = self._sandbox.recycled
        return SessionClosed(recycled=recycled.outcome if recycled else None)


def _sandbox(given: SessionInput) -> Sandbox:
    if given.carried is not None and given.carried.ref is not None:
        return Sandbox.adopt(given.carried.ref, task_queue=given.task_queue)
    return Sandbox.open(
        profile=given.profile,
        caller=given.caller,
        image=given.image,
        reuse_key=given.reuse_key,
        fingerprint=given.fingerprint or given.binding().fingerprint(),
        hold=timedelta(seconds=given.idle_timeout_s) + HOLD_SLACK,
        wait_timeout=timedelta(seconds=given.wait_timeout_s),
        priority=given.priority,
        task_queue=given.task_queue,
    )


def _activity_id(execution_id: str) -> str:
    return f"command-{execution_id}"


def _newest(commands: list[SessionCommand]) -> tuple[SessionCommand, ...]:
    """The latest ended commands whose output fits, oldest first."""
    kept: list[SessionCommand] = []
    left = CARRIED_BYTES
    for command in reversed(commands):
        result = command.result
        left -= len(result.stdout) + len(result.stderr) if result else 0
        if left < 0:
            break
        kept.append(command)
    return tuple(reversed(kept))


def _json(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
