"""Pools as a command sees them: through their managers, by Temporal alone."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

from temporalio.client import ActivityFailureError, Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import RetryPolicy
from temporalio.service import RPCError, RPCStatusCode

from emberpool.activities import names
from emberpool.activities.models import LookInput, PoolView
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.worker.run import Reach, connect_client
from emberpool.workflows.pool_manager import Budget, PoolStatus

LOOK_S: Final = timedelta(seconds=5)
"""A look that takes longer is given up; then the manager's last plan has to do."""
SIGNAL_S: Final = 10.0
"""A manager with a worker has taken a signal by then."""
PAUSE_S: Final = 0.2


@dataclass(frozen=True)
class Look:
    """A pool at one moment."""

    deployment: str
    profile: str
    status: PoolStatus
    """What the manager knows: targets, last plan, last failure."""
    now: PoolView
    fresh: bool
    """Whether `now` was counted now; else it is as the manager's last plan saw it, at most a minute ago."""


class Pools:
    """The pools of a Temporal namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    async def connect(cls, reach: Reach) -> Self:
        """Connect to Temporal."""
        return cls(await connect_client(reach=reach))

    async def look(self, deployment: str | None, profile: str | None) -> Sequence[Look]:
        """Every running pool, or those of one deployment or profile, by name.

        Raises:
            PoolUnavailable: a pool's manager runs, but no worker answers for it.
        """
        if deployment is not None and profile is not None:
            found = [(deployment, profile)] if await self._runs(deployment, profile) else []
        else:
            query = f"WorkflowType = '{names.POOL_MANAGER}' AND ExecutionStatus = 'Running'"
            listed = [one.id.split("/") async for one in self._client.list_workflows(query)]
            found = [(parts[1], parts[2]) for parts in listed if len(parts) == 3]
        wanted = [one for one in found if deployment in (None, one[0]) and profile in (None, one[1])]
        return await asyncio.gather(*[self._look(*one) for one in sorted(wanted)])

    async def set_budget(self, deployment: str, profile: str, budget: Budget) -> None:
        """Signal the budget and wait until the manager has taken it.

        Raises:
            InvalidInput: there is no such pool.
            PoolUnavailable: its manager has no worker; the signal is kept for it.
        """
        await self._signal(deployment, profile, names.SET_BUDGET, budget)

    async def drain(self, deployment: str, profile: str) -> None:
        """Signal the drain and wait until the manager has taken it; raises as `set_budget`."""
        await self._signal(deployment, profile, names.DRAIN)

    async def emptied(self, deployment: str, profile: str, within_s: float) -> bool:
        """Whether the pool had no pod left within that time."""
        ends = time.monotonic() + within_s
        while True:
            look = await self._look(deployment, profile)
            if look.fresh and not any(look.now.by_state.values()):
                return True
            if time.monotonic() >= ends:
                return False
            await asyncio.sleep(PAUSE_S)

    def _manager(self, deployment: str, profile: str) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(names.pool_manager_id(deployment, profile))

    async def _runs(self, deployment: str, profile: str) -> bool:
        try:
            described = await self._manager(deployment, profile).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return described.close_time is None

    async def _signal(self, deployment: str, profile: str, signal: str, *arguments: Budget) -> None:
        if not await self._runs(deployment, profile):
            raise InvalidInput("PROFILE", f"no pool {profile!r} runs in deployment {deployment!r}")
        before = await self._status(deployment, profile)
        await self._manager(deployment, profile).signal(signal, args=list(arguments))
        ends = time.monotonic() + SIGNAL_S
        while (await self._status(deployment, profile)).version == before.version:
            if time.monotonic() > ends:
                raise PoolUnavailable(f"the manager of {profile!r} did not take the signal within {SIGNAL_S:.0f} s")
            await asyncio.sleep(PAUSE_S)

    async def _look(self, deployment: str, profile: str) -> Look:
        status = await self._status(deployment, profile)
        now = await self._counted(status, profile)
        plan = status.plan
        seen = PoolView(
            by_state=plan.by_state,
            idle_fresh=plan.idle_fresh,
            waiting=plan.waiting,
            leases=plan.leases,
            ceiling=status.max_pods,
            min_warm=status.min_warm,
        )
        return Look(deployment, profile, status, now or seen, now is not None)

    async def _status(self, deployment: str, profile: str) -> PoolStatus:
        handle = self._manager(deployment, profile)
        try:
            found: PoolStatus = await handle.query(
                names.POOL_STATUS, result_type=PoolStatus, rpc_timeout=timedelta(seconds=SIGNAL_S)
            )
        except (RPCError, WorkflowQueryFailedError) as error:
            raise PoolUnavailable(
                f"the manager of pool {profile!r} in {deployment!r} does not answer: does a worker run? ({error})"
            ) from error
        return found

    async def _counted(self, status: PoolStatus, profile: str) -> PoolView | None:
        """Counts of this moment, by an activity without a workflow; None where that is not to be had."""
        if not status.task_queue:
            return None
        try:
            view: PoolView = await self._client.execute_activity(
                names.LOOK_AT_POOL,
                LookInput(profile=profile),
                id=f"emberpool-look-{uuid.uuid4().hex[:12]}",
                task_queue=names.control_queue(status.task_queue),
                schedule_to_close_timeout=LOOK_S,
                retry_policy=RetryPolicy(maximum_attempts=1),
                result_type=PoolView,
                summary="look at the pool",
            )
        except (RPCError, ActivityFailureError):
            return None  # an older server has no such activities
        return view


def as_data(look: Look) -> dict[str, object]:
    """A look for machines."""
    return {
        "deployment": look.deployment,
        "profile": look.profile,
        "max_pods": look.status.max_pods,
        "min_warm": look.status.min_warm,
        "queue_share": look.status.queue_share,
        "fresh": look.fresh,
        "pods": {state.value: count for state, count in look.now.by_state.items()},
        "idle_fresh": look.now.idle_fresh,
        "leases": look.now.leases,
        "waiting": look.now.waiting,
        "oldest_wait_s": look.now.oldest_wait_s,
        "quarantined": dict(look.now.quarantined),
        "failure": look.status.failure,
    }
