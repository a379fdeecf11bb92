"""ModelIndex: PoolIndex in one process's memory, on a clock that is given to it."""

import asyncio
import copy
import time
from typing import Literal

from emberpool.pool.index.contract import (
    AtCeiling,
    BecameIdle,
    ClaimRequest,
    FreedReply,
    LeaseRecord,
    MustDrain,
    NotDirty,
    NothingHeld,
    PodRecord,
    PoolCounts,
    RebuiltPod,
    RecycleStarted,
    Released,
    ReleaseReply,
    Reserved,
    Stale,
)
from emberpool.pool.index.limits import IndexLimits, milliseconds
from emberpool.pool.index.model.claiming import Claiming
from emberpool.pool.index.model.ladder import Ladder
from emberpool.pool.index.model.line import Line
from emberpool.pool.index.model.memory import Clock, Memory, Targets
from emberpool.pool.index.model.reads import lease_record, pod_record, pool_counts
from emberpool.pool.index.model.rebuilding import keep_lock, rebuild, take_lock
from emberpool.pool.index.model.records import LIVE, Lease, Pod
from emberpool.pool.index.model.sweeping import Sweeping
from emberpool.pool.model.claim import ClaimReply, Holder, Rebuilding
from emberpool.pool.model.errors import IndexRebuilding, InvalidInput
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag
from emberpool.pool.model.recycle import Attestation
from emberpool.pool.model.state import PodState

_WAKES = 257
"""Most requests that one read of wakes names."""


def wall_clock() -> int:
    """The time of day, in milliseconds."""
    return time.time_ns() // 1_000_000


class ModelIndex:
    """See PoolIndex. It is lost with the process, so it serves simulation and tests, not workers."""

    def __init__(self, clock: Clock = wall_clock, limits: IndexLimits | None = None) -> None:
        """An index without a generation, as a new Redis would be."""
        memory = Memory(limits or IndexLimits(), clock)
        self._seen: dict[str, int] = {}
        self._news = asyncio.Event()
        self._remember(memory, Line(memory))

    def _remember(self, memory: Memory, line: Line) -> None:
        self.memory, self.line = memory, line
        self._ladder = Ladder(memory, line)
        self._claiming = Claiming(memory, line, self._ladder)
        self._sweeping = Sweeping(memory, self._ladder)

    def fork(self) -> "ModelIndex":
        """An index that knows what this one knows, on the same clock, and goes its own way from here."""
        clock = self.memory.clock
        twin = ModelIndex(clock, self.memory.limits)
        twin._remember(*copy.deepcopy((self.memory, self.line), {id(clock): clock}))
        twin._seen = dict(self._seen)
        return twin

    def _begin(self) -> Memory:
        self.memory.begin()
        if not self.memory.generation:
            raise IndexRebuilding("the index has no generation")
        # Who blocks looks again; at most once per transition, and in vain if nothing concerns him.
        self._news.set()
        return self.memory

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See PoolIndex.claim."""
        if request.gang is not None and request.request_id not in request.gang.members:
            raise InvalidInput("gang", f"{request.request_id!r} is no member of it")
        for field, value in (("tag", request.tag), ("fingerprint", request.fingerprint)):
            if ":" in value:
                raise InvalidInput(field, "must not hold a colon")
        try:
            self._begin()
        except IndexRebuilding:
            return Rebuilding()
        return self._claiming.claim(request)

    async def end_call(self, request_id: RequestId, epoch: int) -> None:
        """See PoolIndex.end_call."""
        lease = self._begin().leases.get(request_id)
        if lease is None or lease.state != "leased" or lease.epoch != epoch:
            return
        lease.running = max(0, lease.running - 1)
        if lease.running == 0:
            lease.busy_until = 0
        self.memory.set_expiry(request_id)
        self.memory.touch(request_id)

    async def release(self, request_id: RequestId) -> ReleaseReply:
        """See PoolIndex.release."""
        lease = self._begin().leases.get(request_id)
        if lease is None:
            self.memory.leases[request_id] = Lease(state="closed")
            self.memory.keep_for(f"lease:{request_id}", self.memory.limits.tombstone_ms)
            return NothingHeld()
        if lease.state == "closed":
            return self._released_before(lease)
        if lease.gathering:
            held = lease.state == "leased"
            self._ladder.end_gang(lease.gang, "closed", "released")
            self._ladder.serve_line()
            return self._released(lease) if held else NothingHeld()
        if lease.state == "leased":
            self.memory.soil(lease.pod, "released")
            lease.closed_epoch = self.memory.pods[lease.pod].epoch
            self._ladder.end(request_id, "closed", "released")
            return self._released(lease)
        if lease.state == "reserved":
            self._ladder.free_reservation(request_id)
        lease.pod = ""
        self._ladder.end(request_id, "closed", "released")
        return NothingHeld()

    def _released_before(self, lease: Lease) -> ReleaseReply:
        pod = self.memory.pods.get(lease.pod)
        if pod is not None and pod.state is PodState.DIRTY and pod.epoch == lease.closed_epoch:
            return self._released(lease)
        return NothingHeld()

    def _released(self, lease: Lease) -> Released:
        pod = self.memory.pods[lease.pod]
        return Released(
            pod=PodName(lease.pod),
            endpoint=pod.endpoint,
            boot_id=BootId(pod.boot),
            tag=Tag(pod.tag),
            epoch=pod.epoch,
        )

    async def first_contact_failed(
        self, request_id: RequestId, epoch: int, reason: str
    ) -> Literal["moved", "lost", "stale"]:
        """See PoolIndex.first_contact_failed."""
        lease = self._begin().leases.get(request_id)
        if lease is not None and lease.moved_epoch == epoch > 0 and lease.state in LIVE:
            return "moved"
        if lease is None or lease.state != "leased" or lease.epoch != epoch:
            return "stale"
        if lease.answers > 1:
            self._ladder.condemn(lease.pod, reason)
            return "lost"
        self.memory.soil(lease.pod, reason)
        self.memory.change(lease.pod, PodState.DRAINING, reason=reason)
        self.memory.expiry.discard(request_id)
        lease.moved_epoch = lease.epoch
        self.line.enter(request_id)
        self._ladder.take(request_id)
        return "moved"

    async def detach(self, request_id: RequestId) -> bool:
        """See PoolIndex.detach."""
        lease = self._begin().leases.get(request_id)
        if lease is None or lease.state not in LIVE:
            return False
        lease.detached = True
        self.memory.quiet.discard(request_id)
        if lease.state == "reserved":
            self.memory.deadlines.add(request_id, max(lease.deadline, self.memory.now + lease.hold_ms))
        return True

    async def adopt(self, request_id: RequestId, holder: Holder) -> bool:
        """See PoolIndex.adopt."""
        lease = self._begin().leases.get(request_id)
        if lease is None or lease.state not in LIVE:
            return False
        lease.holder, lease.detached = holder, False
        if self._ladder.being_made(request_id):
            self.memory.deadlines.discard(request_id)
        self.memory.touch(request_id)
        return True

    async def pod_ready(
        self,
        name: PodName,
        uid: PodUid,
        boot_id: BootId,
        endpoint: str,
        image: str,
        epoch: int = 0,
        standby: bool = False,
    ) -> FreedReply:
        """See PoolIndex.pod_ready."""
        pod = self._begin().pods.get(name)
        if pod is None or pod.state not in (PodState.STARTING, PodState.PROMOTING, PodState.SWAPPING):
            return Stale()
        known = max(pod.epoch, epoch)
        self.memory.change(name, uid=uid, boot=boot_id, endpoint=endpoint, image=image, epoch=known, orphan=False)
        if pod.state is PodState.STARTING and standby:
            return self._stands_by(name, pod.reserved)
        return self._ladder.give(pod.reserved, name) if pod.reserved else self._ladder.settle(name)

    def _stands_by(self, name: PodName, waiter: str) -> BecameIdle:
        self.memory.change(name, PodState.STANDBY, maker="")
        if waiter:
            self.memory.change(name, PodState.PROMOTING)
            if not self.memory.leases[waiter].detached:
                self.memory.deadlines.discard(waiter)
            self.memory.wake(waiter)
        return BecameIdle()

    async def pod_failed(self, name: PodName, reason: str) -> FreedReply:
        """See PoolIndex.pod_failed."""
        pod = self._begin().pods.get(name)
        if pod is None:
            return Stale()
        self._ladder.condemn(name, reason)
        return MustDrain(reason=pod.reason)

    async def pod_gone(self, name: PodName, reason: str) -> None:
        """See PoolIndex.pod_gone."""
        pod = self._begin().pods.get(name)
        if pod is None:
            return
        self.memory.drop_pod(name)
        if pod.lease in self.memory.leases:
            self._ladder.holder_lost(pod.lease, reason)
        if pod.reserved:
            self._ladder.stand_again(pod.reserved)
        self._ladder.serve_line()

    async def begin_recycle(self, name: PodName) -> RecycleStarted | NotDirty:
        """See PoolIndex.begin_recycle."""
        memory = self._begin()
        pod = memory.pods.get(name)
        if pod is None:
            return NotDirty()
        if pod.state is PodState.RECYCLING and memory.now - pod.since >= memory.limits.stuck_ms:
            memory.change(name, PodState.DIRTY, reason="recycle_stuck")
        if pod.state is not PodState.DIRTY:
            return NotDirty()
        memory.change(name, PodState.RECYCLING, epoch=pod.epoch + 1)
        return RecycleStarted(
            pod=name, endpoint=pod.endpoint, boot_id=BootId(pod.boot), tag=Tag(pod.tag), epoch=pod.epoch
        )

    async def finish_recycle(
        self,
        name: PodName,
        epoch: int,
        attestation: Attestation,
        keep_alive_s: float,
        max_uses: int,
        retire: str = "",
        boot_id: str = "",
    ) -> FreedReply:
        """See PoolIndex.finish_recycle."""
        memory = self._begin()
        pod = memory.pods.get(name)
        if pod is None or pod.state is not PodState.RECYCLING or pod.epoch != epoch:
            return Stale()
        if reason := self._unfit(pod, attestation, max_uses, retire):
            self._ladder.condemn(name, reason)
            return MustDrain(reason=reason)
        memory.change(name, attestation=attestation, keep_until=memory.now + milliseconds(keep_alive_s))
        memory.change(name, boot=boot_id or pod.boot)
        return self._ladder.give(pod.reserved, name) if pod.reserved else self._ladder.settle(name)

    def _unfit(self, pod: Pod, attestation: Attestation, max_uses: int, retire: str) -> str:
        if not attestation.holds:
            return attestation.quarantined_for
        if pod.uses >= max_uses:
            return "worn_out"
        return retire or ("over_ceiling" if self.memory.over_ceiling else "")

    async def drain(self, name: PodName, reason: str) -> bool:
        """See PoolIndex.drain. A pod that somebody reserved counts as held."""
        pod = self._begin().pods.get(name)
        if pod is None or pod.state is PodState.LEASED or pod.reserved:
            return False
        if pod.state is not PodState.DRAINING:
            self.memory.change(name, PodState.DRAINING, reason=reason)
        return True

    async def reserve_warm(self, name: PodName, image: str) -> Reserved | AtCeiling:
        """See PoolIndex.reserve_warm."""
        memory = self._begin()
        pod = memory.pods.get(name)
        if pod is not None:
            return Reserved(pod=name) if pod.state is PodState.STARTING else AtCeiling()
        self._ladder.serve_line()
        if self.line.first() is not None or not memory.place_free:
            return AtCeiling()
        memory.add_pod(name, Pod(PodState.STARTING, image, memory.now))
        return Reserved(pod=name)

    async def set_targets(self, version: int, ceiling: int, min_warm: int) -> bool:
        """See PoolIndex.set_targets."""
        memory = self._begin()
        if memory.targets is not None and version <= memory.targets.version:
            return False
        memory.targets = Targets(version, ceiling, min_warm)
        self._ladder.serve_line()
        memory.chores += 1
        return True

    async def expire(self, limit: int) -> int:
        """See PoolIndex.expire."""
        return self._swept().expire(limit)

    def _swept(self) -> Sweeping:
        self._begin()
        return self._sweeping

    async def retire_idle(self, limit: int) -> list[PodName]:
        """See PoolIndex.retire_idle."""
        return self._swept().retire_idle(limit)

    async def quiet_leases(self, quiet_s: float, limit: int) -> list[LeaseRecord]:
        """See PoolIndex.quiet_leases."""
        return self._swept().quiet_leases(milliseconds(quiet_s), limit)

    async def pods(self, state: PodState, limit: int, older_than_s: float = 0.0, skip: int = 0) -> list[PodRecord]:
        """See PoolIndex.pods."""
        memory = self._begin()
        names = memory.shelf("pods", state).up_to(memory.now - milliseconds(older_than_s), skip + limit)[skip:]
        return [pod_record(name, memory.pods[name]) for name in names]

    async def pod(self, name: PodName) -> PodRecord | None:
        """See PoolIndex.pod."""
        pod = self._begin().pods.get(name)
        return None if pod is None else pod_record(name, pod)

    async def lease(self, request_id: RequestId) -> LeaseRecord | None:
        """See PoolIndex.lease."""
        lease = self._begin().leases.get(request_id)
        return None if lease is None else lease_record(request_id, lease, self.memory.now)

    async def counts(self) -> PoolCounts:
        """See PoolIndex.counts."""
        return pool_counts(self._begin(), self.line)

    async def try_rebuild_lock(self, who: str, ttl_s: float) -> bool:
        """See PoolIndex.try_rebuild_lock. False too if there is nothing to rebuild."""
        self.memory.begin()
        return take_lock(self.memory, who, milliseconds(ttl_s))

    async def keep_rebuild_lock(self, who: str, ttl_s: float) -> bool:
        """See PoolIndex.keep_rebuild_lock."""
        self.memory.begin()
        return keep_lock(self.memory, who, milliseconds(ttl_s))

    async def rebuild(self, who: str, pods: list[RebuiltPod]) -> bool:
        """See PoolIndex.rebuild."""
        self.memory.begin()
        if self.memory.generation or self.memory.rebuilder != who:
            return False
        self.line.clear()
        rebuild(self.memory, pods)
        self._news.set()
        return True

    async def next_wakes(self, waker: str, timeout_s: float) -> list[RequestId]:
        """See PoolIndex.next_wakes."""
        until = time.monotonic() + timeout_s
        while not self.memory.wakes.get(waker):
            if not await self._told(until):
                return []
        woken = self.memory.wakes[waker]
        found, woken[:_WAKES] = woken[:_WAKES], []
        return [RequestId(request_id) for request_id in found]

    async def next_chores(self, timeout_s: float, reader: str = "") -> bool:
        """See PoolIndex.next_chores."""
        until = time.monotonic() + timeout_s
        while self.memory.chores <= self._seen.get(reader, 0):
            if not await self._told(until):
                return False
        self._seen[reader] = self.memory.chores
        return True

    async def _told(self, until: float) -> bool:
        """Wait for a transition; False if the time is over."""
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), until - time.monotonic())
        except TimeoutError:
            return False
        return True

    async def aclose(self) -> None:
        """Nothing to close."""
