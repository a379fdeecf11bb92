"""What the scripts answer, as the contract's models."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from emberpool.pool.index.contract import (
    BecameIdle,
    FreedReply,
    HandedTo,
    LeaseRecord,
    MustDrain,
    NotDirty,
    NothingHeld,
    PodRecord,
    PoolCounts,
    RecycleStarted,
    Released,
    ReleaseReply,
    Stale,
)
from emberpool.pool.model.claim import (
    Claimed,
    ClaimReply,
    Closed,
    Expired,
    Holder,
    Lost,
    Mismatch,
    PodAddress,
    Promote,
    Provision,
    Rebuilding,
    Source,
    Swap,
    Wait,
)
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag
from emberpool.pool.model.recycle import Attestation
from emberpool.pool.model.state import PodState

UNKNOWN_HOLDER = Holder(namespace="", workflow_id="", run_id="")
"""Holder of a lease restored from a pod's account, until its next call names it."""


def _claimed(reply: Sequence[str]) -> Claimed:
    _, name, uid, boot, endpoint, epoch, tag, source, new, attestation = reply
    return Claimed(
        pod=PodAddress(name=PodName(name), uid=PodUid(uid), boot_id=BootId(boot), endpoint=endpoint),
        epoch=int(epoch),
        tag=Tag(tag),
        source=Source(source),
        new=new == "1",
        attestation=Attestation.model_validate_json(attestation) if attestation else None,
    )


_CLAIM: Mapping[str, Callable[[Sequence[str]], ClaimReply]] = {
    "claimed": _claimed,
    "promote": lambda r: Promote(pod=PodName(r[1])),
    "swap": lambda r: Swap(pod=PodName(r[1]), image=r[2]),
    "provision": lambda r: Provision(pod=PodName(r[1]), image=r[2]),
    "wait": lambda r: Wait(left_s=int(r[1]) / 1000, drain=PodName(r[2]) if r[2] else None),
    "lost": lambda r: Lost(reason=r[1]),
    "closed": lambda _: Closed(),
    "expired": lambda r: Expired(reason=r[1]),
    "mismatch": lambda _: Mismatch(),
    "rebuilding": lambda _: Rebuilding(),
}

_FREED: Mapping[str, Callable[[Sequence[str]], FreedReply]] = {
    "idle": lambda _: BecameIdle(),
    "handed_to": lambda r: HandedTo(request_id=RequestId(r[1])),
    "must_drain": lambda r: MustDrain(reason=r[1]),
    "stale": lambda _: Stale(),
}


def claim_reply(reply: Sequence[str]) -> ClaimReply:
    """Answer of claim.lua."""
    return _CLAIM[reply[0]](reply)


def freed_reply(reply: Sequence[str]) -> FreedReply:
    """Answer of pod_ready.lua, pod_failed.lua and finish_recycle.lua."""
    return _FREED[reply[0]](reply)


def release_reply(reply: Sequence[str]) -> ReleaseReply:
    """Answer of release.lua."""
    if reply[0] != "released":
        return NothingHeld()
    _, name, endpoint, boot, tag, epoch = reply
    return Released(pod=PodName(name), endpoint=endpoint, boot_id=BootId(boot), tag=Tag(tag), epoch=int(epoch))


def recycle_reply(reply: Sequence[str]) -> RecycleStarted | NotDirty:
    """Answer of begin_recycle.lua."""
    if reply[0] != "recycle_started":
        return NotDirty()
    _, name, endpoint, boot, tag, epoch = reply
    return RecycleStarted(pod=PodName(name), endpoint=endpoint, boot_id=BootId(boot), tag=Tag(tag), epoch=int(epoch))


def pod_record(row: Sequence[str]) -> PodRecord:
    """A pod's row of pod.lua and pods.lua."""
    name, state, uid, boot, endpoint, image, fingerprint, tag, epoch, lease, reserved, uses, since, reason = row
    return PodRecord(
        name=PodName(name),
        state=PodState(state),
        uid=PodUid(uid),
        boot_id=BootId(boot),
        endpoint=endpoint,
        image=image,
        fingerprint=fingerprint,
        tag=tag,
        epoch=int(epoch),
        lease=lease,
        reserved_for=reserved,
        uses=int(uses),
        since_ms=int(since),
        reason=reason,
    )


def lease_record(row: Sequence[str]) -> LeaseRecord:
    """A request's row of lease.lua and quiet_leases.lua."""
    request_id, state, pod, epoch, tag, caller, source, holder, detached, expires, quiet = row
    return LeaseRecord.model_validate(
        {
            "request_id": request_id,
            "state": state,
            "pod": pod,
            "epoch": int(epoch),
            "tag": tag,
            "caller": caller,
            "source": source or None,
            "holder": Holder.model_validate_json(holder) if holder else UNKNOWN_HOLDER,
            "detached": detached == "1",
            "expires_ms": int(expires),
            "quiet_ms": int(quiet),
        }
    )


def pool_counts(reply: Sequence[str]) -> PoolCounts:
    """Answer of counts.lua."""
    _, fresh, waiting, leases, ceiling, min_warm, version, oldest, *states = reply
    return PoolCounts(
        by_state={PodState(state): int(number) for state, number in zip(states[::2], states[1::2], strict=True)},
        idle_fresh=int(fresh),
        waiting=int(waiting),
        leases=int(leases),
        ceiling=int(ceiling),
        min_warm=int(min_warm),
        targets_version=int(version),
        oldest_wait_ms=int(oldest),
    )


def rows(reply: Sequence[object]) -> list[Sequence[str]]:
    """The rows of a reply that lists some."""
    return cast("list[Sequence[str]]", reply[1])
