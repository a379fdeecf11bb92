"""User workflows for the tests. Imported inside Temporal's sandbox, so nothing of pytest is here."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from emberpool.activities.models import Lease
from emberpool.pool.model.claim import SandboxRef
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.sandbox import Sandbox


class Plan(Frozen):
    """What a test workflow is to do."""

    profile: str
    caller: str = "tester"
    task_queue: str
    commands: tuple[str, ...] = ()
    pause_s: float = 0.0
    hold_s: float = 900.0
    wait_timeout_s: float = 60.0
    time_limit_s: float = 60.0
    heartbeat_s: float = 15.0
    ref: SandboxRef | None = None


class Seen(Frozen):
    """What it saw."""

    results: tuple[CommandResult, ...] = ()
    lease: Lease | None = None
    text: str = ""
    recycled: str = ""


def opened(plan: Plan) -> Sandbox:
    return Sandbox.open(
        profile=plan.profile,
        caller=plan.caller,
        hold=timedelta(seconds=plan.hold_s),
        wait_timeout=timedelta(seconds=plan.wait_timeout_s),
        task_queue=plan.task_queue,
    )


@workflow.defn
class Commands:
    """Runs the commands one after the other, with a pause between, and leaves."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        results: list[CommandResult] = []
        sandbox = opened(plan)
        async with sandbox:
            for number, command in enumerate(plan.commands):
                if number and plan.pause_s:
                    await workflow.sleep(plan.pause_s)
                results.append(
                    await sandbox.run(
                        command,
                        time_limit=timedelta(seconds=plan.time_limit_s),
                        config={"heartbeat_timeout": timedelta(seconds=plan.heartbeat_s)},
                    )
                )
        recycled = sandbox.recycled.outcome if sandbox.recycled else ""
        return Seen(results=tuple(results), lease=sandbox.lease, recycled=recycled)


@workflow.defn
class Pause:
    """Writes a file, sleeps, and reads it."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        async with opened(plan) as sandbox:
            await sandbox.write_file("notes/a.txt", "kept")
            await workflow.sleep(plan.pause_s)
            return Seen(text=(await sandbox.read_file("notes/a.txt")).decode(), lease=sandbox.lease)


@workflow.defn
class TwoAtOnce:
    """Two first calls at the same time in one sandbox."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        async with opened(plan) as sandbox:
            results = await asyncio.gather(
                sandbox.run("echo one > a; cat /proc/sys/kernel/random/boot_id"), sandbox.run("true")
            )
            look = await sandbox.run("cat a")
            return Seen(results=(*results, look), lease=sandbox.lease)


@workflow.defn
class Unblocked:
    """Runs a command that ends only when a file is written, and writes it while the command runs."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        async with opened(plan) as sandbox:
            await sandbox.claim()
            waiting = asyncio.create_task(sandbox.run("until test -e go; do sleep 0.05; done; cat go"))
            await workflow.sleep(plan.pause_s)
            await sandbox.write_file("go", "went")
            return Seen(results=(await waiting,), lease=sandbox.lease)


@workflow.defn
class HandOver:
    """Continues as new with its sandbox and reads there what it wrote here."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        if plan.ref is None:
            async with opened(plan) as sandbox:
                await sandbox.run("echo carried > carried")
                ref = await sandbox.detach()
            workflow.continue_as_new(plan.model_copy(update={"ref": ref}))
        async with Sandbox.adopt(plan.ref, task_queue=plan.task_queue) as sandbox:
            result = await sandbox.run("cat carried")
            return Seen(results=(result,), lease=sandbox.lease)


@workflow.defn
class Stubborn:
    """Is cancelled while a command runs; says whether its sandbox was recycled before it ended."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        sandbox = opened(plan)
        try:
            async with sandbox:
                await sandbox.run(plan.commands[0], time_limit=timedelta(seconds=plan.time_limit_s))
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
        return Seen(recycled=sandbox.recycled.outcome if sandbox.recycled else "", lease=sandbox.lease)


@workflow.defn
class Typed:
    """Returns the type and text of the typed error that a call ends with."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        try:
            async with opened(plan) as sandbox:
                result = await sandbox.run(
                    Command(shell=plan.commands[0], time_limit_s=plan.time_limit_s),
                )
                result.check()
        except EmberpoolError as error:
            return Seen(text=f"{type(error).__name__}: {error}")
        return Seen(text="no error")


@workflow.defn
class TypedTwice:
    """Calls, pauses, calls again; returns the typed error of the second call."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        async with opened(plan) as sandbox:
            await sandbox.run(plan.commands[0])
            await workflow.sleep(plan.pause_s)
            try:
                await sandbox.run(plan.commands[0])
            except EmberpoolError as error:
                return Seen(text=f"{type(error).__name__}: {error}", lease=sandbox.lease)
        return Seen(text="no error")


@workflow.defn
class Adrift:
    """Detaches its sandbox, and is cancelled as it takes it over again."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        async with opened(plan) as sandbox:
            await sandbox.claim()
            ref = await sandbox.detach()
        adopting = asyncio.create_task(_adopted(plan, ref))
        await asyncio.sleep(0)
        adopting.cancel()
        try:
            await adopting
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            return Seen(text="cancelled")
        return Seen(text="adopted")


async def _adopted(plan: Plan, ref: SandboxRef) -> None:
    async with Sandbox.adopt(ref, task_queue=plan.task_queue):
        await workflow.sleep(60)


FLOWS = (Commands, Pause, TwoAtOnce, Unblocked, HandOver, Stubborn, Typed, TypedTwice, Adrift)
