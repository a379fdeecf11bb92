"""Records as the contract shows them."""

from emberpool.pool.index.contract import LeaseRecord, PodRecord, PoolCounts
from emberpool.pool.index.model.line import Line
from emberpool.pool.index.model.memory import Memory
from emberpool.pool.index.model.records import Lease, Pod
from emberpool.pool.index.replies import UNKNOWN_HOLDER
from emberpool.pool.model.claim import Source
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag
from emberpool.pool.model.state import PodState


def pod_record(name: str, pod: Pod) -> PodRecord:
    """A pod as the index knows it."""
    return PodRecord(
        name=PodName(name),
        state=pod.state,
        uid=PodUid(pod.uid),
        boot_id=BootId(pod.boot),
        endpoint=pod.endpoint,
        image=pod.image,
        fingerprint=pod.fingerprint,
        tag=pod.tag,
        epoch=pod.epoch,
        lease=pod.lease,
        reserved_for=pod.reserved,
        uses=pod.uses,
        since_ms=pod.since,
        reason=pod.reason,
    )


def lease_record(request_id: str, lease: Lease, now: int) -> LeaseRecord | None:
    """A request as the index knows it; None if it was closed or gave up."""
    if lease.state == "closed" or lease.state == "expired":
        return None
    return LeaseRecord(
        request_id=RequestId(request_id),
        state=lease.state,
        pod=lease.pod,
        epoch=lease.epoch,
        tag=Tag(lease.tag),
        caller=lease.caller,
        source=Source(lease.source) if lease.source else None,
        holder=lease.holder or UNKNOWN_HOLDER,
        detached=lease.detached,
        expires_ms=lease.expires if lease.state == "leased" else lease.deadline,
        quiet_ms=now - lease.touched,
    )


def pool_counts(memory: Memory, line: Line) -> PoolCounts:
    """The pool's aggregates."""
    oldest = line.arrivals.lowest()
    return PoolCounts(
        by_state={state: len(memory.shelf("pods", state)) for state in PodState if state is not PodState.GONE},
        idle_fresh=len(memory.shelf("fresh")),
        waiting=len(line),
        leases=len(memory.expiry),
        ceiling=memory.ceiling,
        min_warm=memory.targets.min_warm if memory.targets else 0,
        targets_version=memory.targets.version if memory.targets else 0,
        oldest_wait_ms=0 if oldest is None else memory.now - oldest,
    )
