"""The workflow that measures: a warm tool call and an empty activity by turns, both by the workflow's own clock.

The clock of a workflow is the time at which the server started its current task. From one call to its answer it covers
what a caller waits for: the command's dispatch, the activity, its completion and the next workflow task.
"""

from datetime import datetime

from temporalio import activity, workflow

from emberpool import Sandbox
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.dispatch import call

EMPTY = "bench.empty"
WARM_CALLS = "BenchWarmCalls"


class Nothing(Frozen):
    """Neither input nor output."""


class CallsInput(Frozen):
    """How many of each."""

    profile: str
    rounds: int
    warm_up: int = 10
    """Rounds that are not counted."""


class CallsOutput(Frozen):
    """Milliseconds of each call."""

    empty_ms: tuple[float, ...]
    warm_ms: tuple[float, ...]


@activity.defn(name=EMPTY)
async def empty(nothing: Nothing) -> Nothing:
    """Does nothing: what any activity costs."""
    return nothing


@workflow.defn(name=WARM_CALLS)
class WarmCalls:
    """Calls in turns, within one sandbox that holds its pod from before the first counted call."""

    @workflow.run
    async def run(self, asked: CallsInput) -> CallsOutput:
        """The order changes every round, so that neither always follows the other."""
        empties: list[float] = []
        warms: list[float] = []
        async with Sandbox.open(profile=asked.profile, caller="bench") as sandbox:
            await sandbox.claim()
            for number in range(asked.warm_up + asked.rounds):
                for kind in ("empty", "warm") if number % 2 else ("warm", "empty"):
                    began = workflow.now()
                    if kind == "warm":
                        (await sandbox.run(["true"])).check()
                    else:
                        await call(EMPTY, Nothing(), Nothing, summary="empty", config={})
                    (warms if kind == "warm" else empties).append(_ms_since(began))
        return CallsOutput(empty_ms=tuple(empties[asked.warm_up :]), warm_ms=tuple(warms[asked.warm_up :]))


def _ms_since(began: datetime) -> float:
    return (workflow.now() - began).total_seconds() * 1000
