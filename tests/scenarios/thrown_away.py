"""Workflows that leave an unfinished block of a sandbox behind, and that throw such a one away. Run them unsandboxed:
they share what is left, as workflows of one worker share its garbage collector."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow

from emberpool.workflows.group import SandboxGroup
from emberpool.workflows.sandbox import Sandbox
from scenarios.flows import Plan

LEFT: list[Coroutine[Any, Any, None]] = []
"""Blocks that nobody will go on with: what an eviction may leave for the garbage collector."""


async def _hold(held: Sandbox | SandboxGroup) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await held.close()


@workflow.defn
class Working:
    """Works in a sandbox and in a group, of both of which a block is left behind, until it is told to end."""

    def __init__(self) -> None:
        self._told = False

    @workflow.signal
    def end(self) -> None:
        """Run one more command, and leave."""
        self._told = True

    @workflow.run
    async def run(self, plan: Plan) -> list[str]:
        where: dict[str, Any] = {"profile": plan.profile, "caller": "working", "task_queue": plan.task_queue}
        async with Sandbox.open(**where) as sandbox, SandboxGroup.open(2, **where) as group:
            first = await sandbox.run("echo one | tee f")
            for held in (sandbox, group):
                LEFT.append(_hold(held))
                LEFT[-1].send(None)
            await workflow.wait_condition(lambda: self._told, timeout=timedelta(seconds=60))
            last = await sandbox.run("cat f")
            return [result.text for result in (first, last, *(await group.run("echo $RANK")))]


@workflow.defn
class Collecting:
    """Throws away what is left, as the garbage collector may in the midst of any workflow."""

    @workflow.run
    async def run(self) -> int:
        thrown = len(LEFT)
        LEFT.clear()
        await asyncio.sleep(0)
        return thrown
