"""The pool's index on Redis: one method per script of scripts/, nothing kept in memory but where a reader stands."""

import json
from typing import Literal, Self, cast

from emberpool.pool.index.caller import ScriptCaller
from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.contract import (
    AtCeiling,
    ClaimRequest,
    FreedReply,
    LeaseRecord,
    NotDirty,
    PodRecord,
    PoolCounts,
    RebuiltPod,
    RecycleStarted,
    ReleaseReply,
    Reserved,
)
from emberpool.pool.index.keys import key_base
from emberpool.pool.index.limits import PRIORITIES, IndexLimits, milliseconds
from emberpool.pool.index.readers import BlockingReads
from emberpool.pool.index.rebuild import rebuild_index
from emberpool.pool.index.replies import (
    claim_reply,
    freed_reply,
    lease_record,
    pod_record,
    pool_counts,
    recycle_reply,
    release_reply,
    rows,
)
from emberpool.pool.index.scripts import Script
from emberpool.pool.model.claim import ClaimReply, Holder
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId
from emberpool.pool.model.recycle import Attestation
from emberpool.pool.model.state import PodState


class RedisIndex:
    """See PoolIndex. Every method but `claim` raises IndexRebuilding while there is no generation."""

    def __init__(
        self, redis: IndexRedis, deployment: str, pool: str, limits: IndexLimits | None = None, *, owns: bool = False
    ) -> None:
        """The index of one pool. `owns` says that `aclose` closes `redis` too.

        Raises:
            InvalidInput: deployment or pool cannot be part of a key.
        """
        base = key_base(deployment, pool)
        self.base, self.deployment, self.name = base, deployment, pool
        self.redis, self._owns = redis, owns
        self._run = ScriptCaller(redis, base, limits or IndexLimits())
        self._reads = BlockingReads(redis, base)

    @classmethod
    async def open(cls, url: str, deployment: str, pool: str, limits: IndexLimits | None = None) -> Self:
        """An index with a connection of its own, which `aclose` closes. Raises what `connect` raises."""
        return cls(await connect(url), deployment, pool, limits, owns=True)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See PoolIndex.claim."""
        if request.gang is not None and request.request_id not in request.gang.members:
            raise InvalidInput("gang", f"{request.request_id!r} is no member of it")
        for field, value in (("tag", request.tag), ("fingerprint", request.fingerprint)):
            if ":" in value:
                raise InvalidInput(field, "must not hold a colon")
        reply = await self._run(
            Script.CLAIM,
            request.request_id,
            request.tag,
            request.caller,
            request.image,
            request.fingerprint,
            milliseconds(request.hold_s),
            milliseconds(request.wait_timeout_s),
            max(-PRIORITIES, min(PRIORITIES, request.priority)),
            request.holder.model_dump_json(),
            "" if request.epoch is None else request.epoch,
            milliseconds(request.call_limit_s),
            request.waker,
            request.new_pod,
            request.gang.id if request.gang else "",
            json.dumps(request.gang.members) if request.gang else "[]",
            request.weight,
        )
        return claim_reply(reply)

    async def end_call(self, request_id: RequestId, epoch: int) -> None:
        """See PoolIndex.end_call."""
        await self._run.built(Script.END_CALL, request_id, epoch)

    async def release(self, request_id: RequestId) -> ReleaseReply:
        """See PoolIndex.release."""
        return release_reply(await self._run.built(Script.RELEASE, request_id))

    async def first_contact_failed(
        self, request_id: RequestId, epoch: int, reason: str
    ) -> Literal["moved", "lost", "stale"]:
        """See PoolIndex.first_contact_failed."""
        reply = await self._run.built(Script.FIRST_CONTACT_FAILED, request_id, epoch, reason)
        return cast("Literal['moved', 'lost', 'stale']", reply[0])

    async def detach(self, request_id: RequestId) -> bool:
        """See PoolIndex.detach."""
        return (await self._run.built(Script.DETACH, request_id))[0] == "done"

    async def adopt(self, request_id: RequestId, holder: Holder) -> bool:
        """See PoolIndex.adopt."""
        return (await self._run.built(Script.ADOPT, request_id, holder.model_dump_json()))[0] == "done"

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
        marks = "1" if standby else ""
        return freed_reply(await self._run.built(Script.POD_READY, name, uid, boot_id, endpoint, image, epoch, marks))

    async def pod_failed(self, name: PodName, reason: str) -> FreedReply:
        """See PoolIndex.pod_failed."""
        return freed_reply(await self._run.built(Script.POD_FAILED, name, reason))

    async def pod_gone(self, name: PodName, reason: str) -> None:
        """See PoolIndex.pod_gone."""
        await self._run.built(Script.POD_GONE, name, reason)

    async def begin_recycle(self, name: PodName) -> RecycleStarted | NotDirty:
        """See PoolIndex.begin_recycle."""
        return recycle_reply(await self._run.built(Script.BEGIN_RECYCLE, name))

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
        reply = await self._run.built(
            Script.FINISH_RECYCLE,
            name,
            epoch,
            "1" if attestation.holds else "",
            attestation.model_dump_json(),
            milliseconds(keep_alive_s),
            max_uses,
            retire,
            attestation.quarantined_for,
            boot_id,
        )
        return freed_reply(reply)

    async def drain(self, name: PodName, reason: str) -> bool:
        """See PoolIndex.drain. A pod that somebody reserved counts as held."""
        return (await self._run.built(Script.DRAIN, name, reason))[0] == "done"

    async def reserve_warm(self, name: PodName, image: str) -> Reserved | AtCeiling:
        """See PoolIndex.reserve_warm."""
        reply = await self._run.built(Script.RESERVE_WARM, name, image)
        return Reserved(pod=PodName(reply[1])) if reply[0] == "reserved" else AtCeiling()

    async def set_targets(self, version: int, ceiling: int, min_warm: int) -> bool:
        """See PoolIndex.set_targets."""
        return (await self._run.built(Script.SET_TARGETS, version, ceiling, min_warm))[0] == "done"

    async def expire(self, limit: int) -> int:
        """See PoolIndex.expire. Call it every few seconds: a gap of half a minute counts as an outage."""
        return int((await self._run.built(Script.EXPIRE, limit))[1])

    async def retire_idle(self, limit: int) -> list[PodName]:
        """See PoolIndex.retire_idle."""
        return [PodName(name) for name in (await self._run.built(Script.RETIRE_IDLE, limit))[1:]]

    async def quiet_leases(self, quiet_s: float, limit: int) -> list[LeaseRecord]:
        """See PoolIndex.quiet_leases."""
        return [
            lease_record(row) for row in rows(await self._run.built(Script.QUIET_LEASES, milliseconds(quiet_s), limit))
        ]

    async def pods(self, state: PodState, limit: int, older_than_s: float = 0.0, skip: int = 0) -> list[PodRecord]:
        """See PoolIndex.pods."""
        reply = await self._run.built(Script.PODS, state.value, limit, milliseconds(older_than_s), skip)
        return [pod_record(row) for row in rows(reply)]

    async def pod(self, name: PodName) -> PodRecord | None:
        """See PoolIndex.pod."""
        reply = await self._run.built(Script.POD, name)
        return pod_record(reply[1]) if reply[0] == "pod" else None

    async def lease(self, request_id: RequestId) -> LeaseRecord | None:
        """A request that waits, holds or has lost a pod; None if it is unknown, closed or gave up."""
        reply = await self._run.built(Script.LEASE, request_id)
        return lease_record(reply[1]) if reply[0] == "lease" else None

    async def counts(self) -> PoolCounts:
        """See PoolIndex.counts."""
        return pool_counts(await self._run.built(Script.COUNTS))

    async def try_rebuild_lock(self, who: str, ttl_s: float) -> bool:
        """See PoolIndex.try_rebuild_lock. False too if the index has a generation: there is nothing to rebuild."""
        return (await self._run(Script.REBUILD_LOCK, who, max(1, milliseconds(ttl_s))))[0] == "done"

    async def keep_rebuild_lock(self, who: str, ttl_s: float) -> bool:
        """See PoolIndex.keep_rebuild_lock."""
        return (await self._run(Script.REBUILD_KEEP, who, max(1, milliseconds(ttl_s))))[0] == "done"

    async def rebuild(self, who: str, pods: list[RebuiltPod]) -> bool:
        """See PoolIndex.rebuild."""
        return await rebuild_index(self.redis, self._run, self.base, who, pods)

    async def next_wakes(self, waker: str, timeout_s: float) -> list[RequestId]:
        """See PoolIndex.next_wakes. A wake can be lost with the connection: waiters also claim again by themselves."""
        return await self._reads.next_wakes(waker, timeout_s)

    async def next_chores(self, timeout_s: float, reader: str = "") -> bool:
        """See PoolIndex.next_chores."""
        return await self._reads.next_chores(timeout_s, reader)

    async def aclose(self) -> None:
        """Close the connection if it is this index's own."""
        if self._owns:
            await self.redis.aclose()
