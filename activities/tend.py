"""Tending a pool: recycling what nobody recycled, expiring leases, sweeping holders, keeping the index in step with
the provider."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.errors import translated
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import TendInput, TendOutput
from emberpool.activities.pools import Pool, Pools
from emberpool.activities.probe import pages, probe_idle
from emberpool.activities.queue_share import follow_queue
from emberpool.activities.recycle import delete, recycle
from emberpool.activities.start import start_warm
from emberpool.activities.sweep import sweep_lease
from emberpool.pool.model.claim import Holder
from emberpool.pool.model.errors import EmberpoolError, IndexRebuilding, PoolUnavailable
from emberpool.pool.model.ids import PodName, RequestId
from emberpool.pool.model.pod import Phase, PodFacts
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.state import PodState

log = logging.getLogger(__name__)

ROUND_S = 1.0
"""Longest pause between two rounds; a chore in the index ends it at once."""
STAY_S = 600.0
"""How long one activity tends before the manager starts the next: few events in its history."""
COMPARE_S = 30.0
"""Pause between two comparisons of the index with everything that the provider has."""
EXISTING = (PodState.STANDBY, PodState.IDLE, PodState.LEASED, PodState.DIRTY, PodState.RECYCLING)
"""States whose pods the provider must have."""
PAGE = 100
"""Pods or leases looked at in one round of each kind."""
PROBE_S = 30.0
"""How long a pod is left alone before it is asked whether it still serves, and the pause between two rounds of that."""
GRACE_S = 1.0
"""A dirty pod is left for this long to the workflow that is releasing it; after that nobody else comes."""
LAST_S = 5.0
"""What chores that are under way get at the end of a stay."""
STEP_S = 120.0
"""A promotion or a swap that takes longer is given up: whoever did it may have died, and its request waits."""
ORPHAN_S = 15.0
"""A pod that starts, or changes for nobody, for longer is looked after here too: whoever was at it may have died."""


class Tending:
    """The long-lived activity of a pool manager."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    @activity.defn(name=names.TEND_POOL)
    async def tend_pool(self, call: TendInput) -> TendOutput:
        """Tend the pool for ten minutes or until cancelled. Two at once do no harm: every act is one transition."""
        with translated():
            pool = self._pools.get(call.profile)
            tender = Tender(pool, self._pools.sweep_quiet_s)
            async with heartbeating(self._pools.heartbeat_s, lambda: tender.done), asyncio.TaskGroup() as group:
                tender.beside(group, tender.watch(group))
                tender.beside(group, tender.probe())
                tender.beside(group, follow_queue(pool))
                tender.beside(group, tender.sweep_gangs())
                await tender.rounds(group, time.monotonic() + STAY_S)
                await tender.stop()
            return tender.done


class Tender:
    """One stay at one pool."""

    def __init__(self, pool: Pool, sweep_quiet_s: float) -> None:
        self._pool = pool
        self._sweep_quiet_s = sweep_quiet_s
        self._busy: set[str] = set()
        self._beside: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._compared = 0.0
        self.done = TendOutput()

    def beside(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the rounds, at most until they end."""
        task = group.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def stop(self) -> None:
        """Cancel what is done beside the rounds, the chores after a while: the next tending goes on with it."""
        if self._chores:
            await asyncio.wait(self._chores, timeout=LAST_S)
        for task in self._beside:
            task.cancel()

    def _chore(self, group: asyncio.TaskGroup, name: str, act: Callable[[], Awaitable[object]]) -> None:
        """Do one thing about a pod or request, unless it is being done: one that hangs holds up no other."""
        if name in self._busy:
            return
        self._busy.add(name)
        task = self.beside(group, self._quietly(act))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        task.add_done_callback(lambda _: self._busy.discard(name))

    async def rounds(self, group: asyncio.TaskGroup, until: float) -> None:
        """Go round until the time is over or the worker stops. Trouble with a server ends a round, not the stay."""
        while time.monotonic() < until and not activity.is_worker_shutdown():
            try:
                await self.round(group)
                await self._adopt(group)
                await self._compare(group)
                await self._pool.index.next_chores(ROUND_S)
            except IndexRebuilding:
                self._pool.rebuilder.begin(self._pool)
                await asyncio.sleep(ROUND_S)
            except PoolUnavailable as error:
                log.warning("tending %s: %s", self._pool.profile.name, error)
                await asyncio.sleep(ROUND_S)

    async def round(self, group: asyncio.TaskGroup) -> None:
        """Begin each chore once."""
        index = self._pool.index
        self._count(expired=await index.expire(PAGE))
        for pod in await index.pods(PodState.DIRTY, PAGE, older_than_s=GRACE_S):
            self._chore(group, pod.name, partial(self._recycle, pod.name))
        for pod in await index.pods(PodState.RECYCLING, PAGE):
            self._chore(
                group, pod.name, partial(self._recycle, pod.name)
            )  # the index gives it out again only after 30 s
        for state in (PodState.PROMOTING, PodState.SWAPPING):
            for pod in await index.pods(state, PAGE, older_than_s=ORPHAN_S):
                if not pod.reserved_for:
                    await index.drain(pod.name, "unwanted")  # who was to carry it out may never have begun
        for state in (PodState.PROMOTING, PodState.SWAPPING):
            for pod in await index.pods(state, PAGE, older_than_s=STEP_S):
                self._chore(group, pod.name, partial(self._give_up, pod.name, f"{state.value}_stuck"))
        for pod in await index.pods(PodState.DRAINING, PAGE):
            self._chore(group, pod.name, partial(self._delete, pod.name, pod.reason or "draining"))
        for lease in await index.quiet_leases(self._sweep_quiet_s, PAGE):
            self._chore(group, lease.request_id, partial(self._sweep, lease.request_id, lease.holder))

    async def _adopt(self, group: asyncio.TaskGroup) -> None:
        """Bring up starting pods whose creator may have died, beside the rounds: a pod may take minutes."""
        for pod in await self._pool.index.pods(PodState.STARTING, PAGE, older_than_s=ORPHAN_S):
            self._chore(group, pod.name, partial(start_warm, self._pool, pod.name, pod.image))

    async def _compare(self, group: asyncio.TaskGroup) -> None:
        """Find the pods that the provider does not know any more, and those that only the provider knows: a watch tells
        of changes since it began only, and of each once."""
        if time.monotonic() < self._compared + COMPARE_S:
            return
        self._compared = time.monotonic()
        # The index first: a pod that is ready there was created before the provider is asked.
        held = [pod.name for state in EXISTING async for page in pages(self._pool, state) for pod in page]
        listed = {facts.name for facts in await self._pool.provider.list()}
        for name in listed.difference(held):
            await self._orphan(group, name)
        for name in held:
            if name not in listed:
                await self._pool.index.pod_failed(name, "gone")
                await self._delete(name, "gone")

    async def watch(self, group: asyncio.TaskGroup) -> None:
        """Tell the index of pods that ended. Starts anew after trouble with the provider."""
        while True:
            try:
                async for facts in self._pool.provider.watch():
                    await self._saw(group, facts)
            except EmberpoolError as error:
                log.warning("watching %s: %s", self._pool.profile.name, error)
            await asyncio.sleep(ROUND_S)

    async def probe(self) -> None:
        """Go round the pods that nobody uses, at leisure."""
        while True:
            await asyncio.sleep(PROBE_S)
            await self._quietly(lambda: probe_idle(self._pool, PROBE_S))

    async def sweep_gangs(self) -> None:
        """Delete what ended gangs have left in the cluster, at leisure."""
        gangs = self._pool.gangs
        while gangs is not None:
            await asyncio.sleep(COMPARE_S)
            await self._quietly(gangs.sweep)

    async def _saw(self, group: asyncio.TaskGroup, facts: PodFacts) -> None:
        """Deletions are chores: one that does not end, as on a lost node, must not keep us from hearing more."""
        if facts.phase is not Phase.FAILED:
            await self._orphan(group, facts.name)
            return
        reason = facts.reason or "pod_gone"
        await self._pool.index.pod_failed(facts.name, reason)
        self._chore(group, facts.name, partial(self._delete, facts.name, reason))

    async def _orphan(self, group: asyncio.TaskGroup, name: PodName) -> None:
        """Delete it if it is one. The intent to create is written first, so a pod without a record is nobody's
        (e2b-dev/infra#3637)."""
        if await self._pool.index.pod(name) is None:
            self._chore(group, name, partial(self._delete, name, "orphan"))

    async def _recycle(self, name: PodName) -> None:
        result = await recycle(self._pool, name)
        if result.outcome is not RecycleOutcome.ALREADY:
            self._count(recycled=1)

    async def _sweep(self, request_id: RequestId, holder: Holder) -> None:
        if await sweep_lease(self._pool, request_id, holder):
            self._count(swept=1)

    async def _delete(self, name: PodName, reason: str) -> None:
        await delete(self._pool, name, reason)
        self._count(deleted=1)

    async def _give_up(self, name: PodName, reason: str) -> None:
        await self._pool.index.pod_failed(name, reason)
        await self._delete(name, reason)

    async def _quietly(self, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await act()
        except EmberpoolError as error:
            log.warning("tending %s: %s", self._pool.profile.name, error)

    def _count(self, recycled: int = 0, deleted: int = 0, expired: int = 0, swept: int = 0) -> None:
        self._pool.metrics.tended({"recycled": recycled, "deleted": deleted, "expired": expired, "swept": swept})
        self.done = TendOutput(
            recycled=self.done.recycled + recycled,
            deleted=self.done.deleted + deleted,
            expired=self.done.expired + expired,
            swept=self.done.swept + swept,
        )
