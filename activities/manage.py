"""What the pool manager calls: targets, plans, warm pods, retirement."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.errors import translated
from emberpool.activities.execution import execution_id
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import (
    LookInput,
    Nothing,
    PlanOutput,
    PoolInput,
    PoolView,
    RetireInput,
    RetireOutput,
    WarmInput,
    WarmOutput,
)
from emberpool.activities.pools import Pool, Pools
from emberpool.activities.recycle import delete
from emberpool.activities.start import start_warm
from emberpool.pool.index.contract import PodRecord, PoolCounts, Reserved
from emberpool.pool.model.errors import IndexRebuilding, PoolUnavailable
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.recycle import NOT_ATTESTED
from emberpool.pool.model.state import PodState
from emberpool.pool.policy.plan import Plan
from emberpool.pool.policy.plan import plan_pool as plan

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Pause between two looks at the index: at most one plan a second."""
LONG_POLL_S = 60.0
"""A plan with nothing to do returns after this, so that an idle pool costs a handful of Temporal actions a minute."""

MOST_DRAINING = 1000
"""Pods that wait for their deletion, of which a look tells who is in quarantine."""
NO_PROOF = "no proof"
"""What a pod is in quarantine for whose emberd did not say anything."""


class Managing:
    """The pool manager's activities."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    @activity.defn(name=names.SET_TARGETS)
    async def set_targets(self, call: PoolInput) -> Nothing:
        """Write the pool's share into the index; a lower version than it has is ignored."""
        with translated():
            await self._pools.get(call.profile).index.set_targets(call.version, call.max_pods, call.min_warm)
            return Nothing()

    @activity.defn(name=names.PLAN_POOL)
    async def plan_pool(self, call: PoolInput) -> PlanOutput:
        """Wait until the pool needs something (at most a minute) and say what. Rebuilds a lost index."""
        with translated():
            pool = self._pools.get(call.profile)
            ends = time.monotonic() + LONG_POLL_S
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                while True:
                    over = time.monotonic() >= ends or activity.is_worker_shutdown()
                    output = await self._look(pool, call, patient=not over)
                    wanted = output is not None and (output.create or output.standby or output.retire)
                    if output is not None and (wanted or over or _taken_over(output, call)):
                        return output
                    await asyncio.sleep(LOOK_S)

    async def _look(self, pool: Pool, call: PoolInput, patient: bool) -> PlanOutput | None:
        """A plan, or None if there is no index now; without patience, an index that is away is an error."""
        try:
            counts = await pool.index.counts()
            if counts.targets_version < call.version:
                await pool.index.set_targets(call.version, call.max_pods, call.min_warm)
                counts = await pool.index.counts()
            retire = await pool.index.retire_idle(limit=50)
        except IndexRebuilding:
            pool.rebuilder.begin(pool)
            return None
        except PoolUnavailable as error:
            # Looked for again at once, rather than at a retry's growing pauses: claims wait for the targets.
            if not patient:
                raise
            log.warning("planning %s: %s", pool.profile.name, error)
            return None
        output = _output(counts, plan(counts, standby=pool.profile.standby), tuple(retire))
        return output.model_copy(update={"follows_queue": pool.queue is not None})

    @activity.defn(name=names.LOOK_AT_POOL)
    async def look_at_pool(self, call: LookInput) -> PoolView:
        """Count the pool now. For people, as a standalone activity: it leaves nothing in any workflow's history."""
        with translated():
            index = self._pools.get(call.profile).index
            counts = await index.counts()
            return PoolView(
                by_state=counts.by_state,
                idle_fresh=counts.idle_fresh,
                waiting=counts.waiting,
                leases=counts.leases,
                ceiling=counts.ceiling,
                min_warm=counts.min_warm,
                oldest_wait_s=counts.oldest_wait_ms / 1000,
                quarantined=_quarantined(await index.pods(PodState.DRAINING, MOST_DRAINING)),
            )

    @activity.defn(name=names.PROVISION_WARM)
    async def provision_warm(self, call: WarmInput) -> WarmOutput:
        """Create up to `count` pods for the warm target and `standby` that stand by, as far as the ceiling allows.

        The names come from the activity's id, so that a retry goes on with the pods of the attempt before.
        """
        with translated():
            pool = self._pools.get(call.profile)
            image = pool.profile.base_image
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                seeds = [(f"{number}", False) for number in range(call.count)]
                seeds += [(f"standby-{number}", True) for number in range(call.standby)]
                starts: list[Coroutine[Any, Any, str]] = []
                for seed, standby in seeds:
                    reply = await pool.index.reserve_warm(pool.pod_name(f"{execution_id()}/{seed}"), image)
                    if isinstance(reply, Reserved):
                        starts.append(start_warm(pool, reply.pod, image, standby))
                failures = await asyncio.gather(*starts)
            bad = [failure for failure in failures if failure]
            return WarmOutput(ready=len(failures) - len(bad), failure=bad[0][:500] if bad else "")

    @activity.defn(name=names.RETIRE_PODS)
    async def retire_pods(self, call: RetireInput) -> RetireOutput:
        """Delete pods that the index has set draining."""
        with translated():
            pool = self._pools.get(call.profile)
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                for name in call.pods:
                    await delete(pool, name, "retired")
            return RetireOutput(gone=call.pods)


def _quarantined(draining: Sequence[PodRecord]) -> Mapping[str, int]:
    reasons = (pod.reason for pod in draining if pod.reason.startswith(NOT_ATTESTED))
    return Counter(reason.removeprefix(NOT_ATTESTED).removeprefix(": ") or NO_PROOF for reason in reasons)


def _output(counts: PoolCounts, planned: Plan, retire: tuple[PodName, ...]) -> PlanOutput:
    return PlanOutput(
        create=planned.create,
        standby=planned.standby,
        retire=retire,
        by_state=counts.by_state,
        idle_fresh=counts.idle_fresh,
        waiting=counts.waiting,
        leases=counts.leases,
        version=counts.targets_version,
        max_pods=counts.ceiling,
        min_warm=counts.min_warm,
    )


def _taken_over(output: PlanOutput, call: PoolInput) -> bool:
    written, wanted = (output.max_pods, output.min_warm), (call.max_pods, call.min_warm)
    return call.take_over and (output.version > call.version or written != wanted)
