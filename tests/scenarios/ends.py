"""Workflows whose sandboxes are taken away, or that are ended themselves. Imported inside Temporal's sandbox."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ActivityConfig

from emberpool.activities import names
from emberpool.activities.models import RunInput
from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.sandbox import Sandbox
from scenarios.flows import Plan, Seen, opened


@workflow.defn
class Bereft:
    """Runs the first command, waits to be told, runs the second, and after an error the third in a new sandbox."""

    def __init__(self) -> None:
        self._told = False
        self._pod = ""

    @workflow.signal
    def go_on(self) -> None:
        """Whatever was to happen to the sandbox has happened."""
        self._told = True

    @workflow.query
    def pod(self) -> str:
        """The pod that it holds, once the first command has ended."""
        return self._pod

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        text, results, lease = "no error", list[CommandResult](), None
        try:
            async with opened(plan) as sandbox:
                results.append(await sandbox.run(plan.commands[0]))
                lease = sandbox.lease
                self._pod = lease.pod if lease else ""
                await workflow.wait_condition(lambda: self._told)
                results.append(await sandbox.run(plan.commands[1]))
        except EmberpoolError as error:
            text = f"{type(error).__name__}: {error}"
            async with opened(plan) as sandbox:
                results.append(await sandbox.run(plan.commands[2]))
        return Seen(results=tuple(results), lease=lease, text=text)


class Run(Frozen):
    """What a run of several sandboxes is to do."""

    plan: Plan
    count: int
    fails: bool = False
    """Whether a task of its own raises once all of them are told."""


class RunSeen(Frozen):
    """What each sandbox printed, and where its pod came from."""

    texts: tuple[str, ...] = ()
    sources: tuple[Source | None, ...] = ()


@workflow.defn
class Several:
    """Runs the command in several sandboxes at once, in one task group."""

    def __init__(self) -> None:
        self._told = False

    @workflow.signal
    def fail(self) -> None:
        """Let the task that fails do so."""
        self._told = True

    @workflow.run
    async def run(self, given: Run) -> RunSeen:
        sandboxes = [opened(given.plan) for _ in range(given.count)]
        try:
            async with asyncio.TaskGroup() as group:
                if given.fails:
                    group.create_task(self._fail())
                tasks = [group.create_task(_one(sandbox, given.plan)) for sandbox in sandboxes]
        except ExceptionGroup as error:
            raise ApplicationError(repr(error.exceptions), non_retryable=True) from error
        return RunSeen(
            texts=tuple(task.result() for task in tasks),
            sources=tuple(one.lease.source if one.lease else None for one in sandboxes),
        )

    async def _fail(self) -> None:
        await workflow.wait_condition(lambda: self._told)
        raise ApplicationError("one task fails", non_retryable=True)


async def _one(sandbox: Sandbox, plan: Plan) -> str:
    async with sandbox:
        return (await sandbox.run(plan.commands[0])).text


@workflow.defn
class Bare:
    """Runs commands by every way there is, with no heartbeat time-out named in any of them."""

    @workflow.run
    async def run(self, plan: Plan) -> None:
        limit = timedelta(seconds=plan.time_limit_s)
        first, second, third = plan.commands
        async with opened(plan) as sandbox, sandbox.current():
            unset: ActivityConfig = {"heartbeat_timeout": None}
            call = RunInput(ref=sandbox.ref, command=Command(shell=second, time_limit_s=plan.time_limit_s))
            await asyncio.gather(
                sandbox.run(first, time_limit=limit, config=unset),
                _bare(names.RUN_COMMAND, call, plan.task_queue, limit),
                _bare(names.SANDBOX_BASH, third, plan.task_queue, limit),
            )


async def _bare(name: str, argument: object, queue: str, limit: timedelta) -> None:
    await workflow.execute_activity(name, argument, task_queue=queue, start_to_close_timeout=limit)


END_FLOWS = (Bereft, Several, Bare)
