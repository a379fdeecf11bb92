"""PoolManager: one long-lived workflow per pool that holds its targets and keeps it warm.

It is never on the path of a claim. Its plans come from an activity, so that a tuned policy never breaks replay.
"""

from datetime import timedelta

from pydantic import Field
from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType, ActivityHandle

from emberpool.activities import names
from emberpool.activities.models import (
    Nothing,
    PlanOutput,
    PoolInput,
    RetireInput,
    RetireOutput,
    ShareOfQueue,
    TendInput,
    TendOutput,
    WarmInput,
    WarmOutput,
)
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.frozen import Frozen, Strict
from emberpool.pool.model.state import PodState
from emberpool.workflows.dispatch import call

PAUSE_AFTER_FAILURE = timedelta(seconds=5)
"""A pool whose pods fail to start tries again this much later, not at once."""
TEND_LIMIT = timedelta(minutes=15)
"""Above the ten minutes that one tending lasts."""


GAP = "\N{NO-BREAK SPACE}" * 4
"""Temporal's UI puts a table's columns side by side without a gap."""
MEANING = {
    PodState.STARTING: "not ready yet",
    PodState.STANDBY: "ready, holds a tiny share",
    PodState.PROMOTING: "takes its full share",
    PodState.IDLE: "warm",
    PodState.SWAPPING: "gets another image",
    PodState.LEASED: "works for a caller",
    PodState.DIRTY: "released, not reset yet",
    PodState.RECYCLING: "is being reset",
    PodState.DRAINING: "is being deleted",
}
"""What a pod in each state does, for people."""


class PoolManagerInput(Frozen):
    """State of a manager: what it is started with and what it carries over continue-as-new."""

    deployment: str
    profile: str
    max_pods: int
    min_warm: int
    version: int = 1
    """Rises with every change of the targets, so that a late write is ignored by the index."""
    task_queue: str = names.DEFAULT_TASK_QUEUE
    profile_max_pods: int | None = None
    profile_min_warm: int | None = None
    """What the profile last said, so that only a change of it overrides a budget."""
    queue_share: int | None = None
    """Pods that the pool's queue leaves it; None: it follows none, or nothing was heard of it yet."""
    took_over: bool = False
    """Whether the versions that a manager before this one has written are known to be lower than ours."""


class Budget(Strict):
    """Argument of the signal `set_budget`."""

    max_pods: int = Field(ge=0)
    """The pool's ceiling; starting and dying pods count."""
    min_warm: int | None = Field(default=None, ge=0)
    """None keeps the warm target."""


class PoolStatus(Frozen):
    """Answer of the query `status`: targets now, and the pool as the last plan saw it."""

    max_pods: int
    min_warm: int
    version: int
    plan: PlanOutput = PlanOutput()
    failure: str = ""
    deployment: str = ""
    profile: str = ""
    task_queue: str = ""
    queue_share: int | None = None
    """What its queue leaves it: then the smaller of this and `max_pods` is its ceiling."""


@workflow.defn(name=names.POOL_MANAGER)
class PoolManager:
    """Holds targets, carries out plans, starts the tending. Signals: set_budget, set_queue_share, drain.
    Query: status."""

    @workflow.init
    def __init__(self, state: PoolManagerInput) -> None:
        self._state = state
        self._plan = PlanOutput()
        self._failure = ""

    @workflow.run
    async def run(self, state: PoolManagerInput) -> None:
        """Until continue-as-new: tend without a gap, and plan after plan."""
        del state  # restored in __init__, where handlers that run first can see it
        tending = self._tend()
        while not workflow.info().is_continue_as_new_suggested():
            if tending.done():
                await self._tended(tending)
                tending = self._tend()
            try:
                await self._round()
            except (EmberpoolError, ActivityError) as error:
                await self._pause(str(error))
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self._state)

    @workflow.signal(name=names.SET_BUDGET)
    async def set_budget(self, budget: Budget) -> None:
        """Change the ceiling, and the warm target if it is given."""
        warm = self._state.min_warm if budget.min_warm is None else budget.min_warm
        await self._budget(budget.max_pods, min(warm, budget.max_pods))

    @workflow.signal(name=names.APPLY_PROFILE)
    async def apply_profile(self, profile: Budget) -> None:
        """A worker started with this profile: its numbers become the targets if they changed since the last time."""
        said = {"profile_max_pods": profile.max_pods, "profile_min_warm": profile.min_warm}
        before = self._state
        self._state = before.model_copy(update=said)
        if (before.profile_max_pods, before.profile_min_warm) not in (
            (None, None),
            (profile.max_pods, profile.min_warm),
        ):
            await self.set_budget(profile)

    @workflow.signal(name=names.DRAIN)
    async def drain(self) -> None:
        """Set ceiling and warm target to zero: held pods finish, all others go."""
        await self._budget(0, 0)

    @workflow.signal(name=names.SET_QUEUE_SHARE)
    async def set_queue_share(self, share: ShareOfQueue) -> None:
        """The queue observer says how many pods the pool's queue leaves it; its budget stays as it is."""
        if share.max_pods != self._state.queue_share:
            await self._change({"queue_share": share.max_pods}, f"the queue leaves {share.max_pods} pods")

    @workflow.query(name=names.POOL_STATUS)
    def status(self) -> PoolStatus:
        """Targets and the pool as the last plan saw it."""
        state = self._state
        return PoolStatus(
            max_pods=state.max_pods,
            min_warm=state.min_warm,
            version=state.version,
            plan=self._plan,
            failure=self._failure,
            deployment=state.deployment,
            profile=state.profile,
            task_queue=state.task_queue,
            queue_share=state.queue_share,
        )

    async def _budget(self, max_pods: int, min_warm: int) -> None:
        summary = f"budget: {max_pods} pods, {min_warm} warm"
        await self._change({"max_pods": max_pods, "min_warm": min_warm}, summary)

    async def _change(self, update: dict[str, int | None], summary: str) -> None:
        self._state = self._state.model_copy(update={**update, "version": self._state.version + 1})
        targets = self._targets()
        try:
            await call(
                names.SET_TARGETS,
                targets,
                Nothing,
                summary=summary,
                config={"task_queue": self._queue},
            )
        except (EmberpoolError, ActivityError) as error:
            self._failure = str(error)  # the next plan writes them

    async def _round(self) -> None:
        self._plan = await call(
            names.PLAN_POOL,
            self._targets(),
            PlanOutput,
            summary="look after the warm target",
            config={"task_queue": self._queue},
        )
        self._take_over()
        if not self._plan.follows_queue and self._state.queue_share is not None:
            update = {"queue_share": None, "version": self._state.version + 1}
            self._state = self._state.model_copy(update=update)  # the next plan writes it
        self._show()
        if self._plan.retire:
            await call(
                names.RETIRE_PODS,
                RetireInput(profile=self._state.profile, pods=self._plan.retire),
                RetireOutput,
                summary=f"retire {len(self._plan.retire)} pods",
                config={"task_queue": self._queue},
            )
        if self._plan.create or self._plan.standby:
            warm = await call(
                names.PROVISION_WARM,
                WarmInput(profile=self._state.profile, count=self._plan.create, standby=self._plan.standby),
                WarmOutput,
                summary=f"create {self._plan.create} warm pods, {self._plan.standby} that stand by",
                config={"task_queue": self._queue},
            )
            if warm.failure and not warm.ready:
                await self._pause(warm.failure)
                return
        self._failure = ""

    def _take_over(self) -> None:
        """Once: go on from the version that the index holds, if a manager that is gone has written it."""
        plan, state = self._plan, self._state
        if state.took_over or plan.version == 0:
            return
        wanted = self._targets()
        same = (plan.max_pods, plan.min_warm) == (wanted.max_pods, wanted.min_warm)
        ahead = plan.version > state.version or (plan.version == state.version and not same)
        version = plan.version + 1 if ahead else state.version
        self._state = state.model_copy(update={"took_over": True, "version": version})

    async def _pause(self, failure: str) -> None:
        self._failure = failure
        self._show()
        await workflow.sleep(PAUSE_AFTER_FAILURE, summary="a pool that fails is not hammered")

    def _tend(self) -> ActivityHandle[TendOutput]:
        return workflow.start_activity(
            names.TEND_POOL,
            TendInput(profile=self._state.profile),
            result_type=TendOutput,
            task_queue=self._queue,
            start_to_close_timeout=TEND_LIMIT,
            heartbeat_timeout=timedelta(seconds=20),
            cancellation_type=ActivityCancellationType.ABANDON,
            summary="recycle, expire, sweep, watch",
        )

    async def _tended(self, tending: ActivityHandle[TendOutput]) -> None:
        try:
            await tending
        except ActivityError as error:
            await self._pause(f"tending failed: {error.cause}")

    def _targets(self) -> PoolInput:
        state = self._state
        return PoolInput(
            profile=state.profile,
            version=state.version,
            max_pods=self._ceiling,
            min_warm=min(state.min_warm, self._ceiling),
            take_over=not state.took_over,
        )

    @property
    def _ceiling(self) -> int:
        """The budget, unless the pool's queue leaves it less."""
        share = self._state.queue_share
        return self._state.max_pods if share is None else min(self._state.max_pods, share)

    @property
    def _queue(self) -> str:
        return names.control_queue(self._state.task_queue)

    def _show(self) -> None:
        plan, state = self._plan, self._state
        held = sum(plan.by_state.values())
        rows = "\n".join(
            f"| {one} | {GAP}{plan.by_state.get(one, 0)} | {GAP}{words} |" for one, words in MEANING.items()
        )
        workflow.set_current_details(
            f"**Pool {state.profile}**: {held} of at most {self._ceiling} pods, {plan.leases} leased, "
            f"{plan.idle_fresh} warm and unused (target {state.min_warm}), {plan.waiting} requests waiting; "
            f"as of {workflow.now():%H:%M:%S} UTC\n\n"
            f"| state | {GAP}pods | {GAP}meaning |\n| :--- | ---: | :--- |\n{rows}\n"
            + (
                f"\nIts queue leaves it {state.queue_share} of {state.max_pods}.\n"
                if self._ceiling < state.max_pods
                else ""
            )
            + (f"\n**Last failure**: {self._failure[:300]}\n" if self._failure else "")
        )
