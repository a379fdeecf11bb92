"""Records as the contract shows them."""

from emberpool.pool.index.contract import LeaseRecord, PodRecord
from emberpool.pool.index.model.records import Lease, Pod
from emberpool.pool.index.replies import UNKNOWN_HOLDER
from emberpool.pool.model.claim import Source
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag


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
