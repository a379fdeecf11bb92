"""The claim: the one question that a request asks, again and again, until it holds a pod or is over."""

from emberpool.pool.index.contract import ClaimRequest
from emberpool.pool.index.limits import PRIORITIES, milliseconds
from emberpool.pool.index.model.ladder import Ladder
from emberpool.pool.index.model.line import Line
from emberpool.pool.index.model.memory import Memory
from emberpool.pool.index.model.records import LIVE, GangRecord, Lease
from emberpool.pool.model.claim import (
    Claimed,
    ClaimReply,
    Closed,
    Expired,
    Gang,
    Lost,
    Mismatch,
    PodAddress,
    Promote,
    Provision,
    Source,
    Swap,
    Wait,
)
from emberpool.pool.model.ids import BootId, PodName, PodUid, Tag
from emberpool.pool.model.state import PodState


class Claiming:
    """Answers claims."""

    def __init__(self, memory: Memory, line: Line, ladder: Ladder) -> None:
        self._memory, self._line, self._ladder = memory, line, ladder

    def claim(self, request: ClaimRequest) -> ClaimReply:
        """See PoolIndex.claim."""
        known = self._memory.leases.get(request.request_id)
        if known is None:
            if request.epoch is not None:
                return Lost(reason="unknown")
            if request.gang is not None:
                return self._form(request, request.gang) or self._advance(request.request_id, new=True)
            self._memory.leases[request.request_id] = self._new_lease(request)
            return self._advance(request.request_id, new=True)
        return _over(known, request) or self._again(known, request)

    def _form(self, request: ClaimRequest, gang: Gang) -> ClaimReply | None:
        """Put every member in line at once; an answer only if the gang cannot be. After a rebuild some may be known."""
        leases = self._memory.leases
        for known in (leases.get(member) for member in gang.members):
            if known is not None and known.tag != request.tag:
                return Closed() if known.state == "closed" else Mismatch()
            if known is not None and known.state not in LIVE:
                return _ended(known)
        self._memory.ends.discard(f"gang:{gang.id}")
        self._memory.gangs[gang.id] = GangRecord(tuple(gang.members))
        for place, member in enumerate(gang.members, 1):
            if member in leases:
                leases[member].gang = gang.id
                continue
            own = member == request.request_id
            name = request.new_pod if own else PodName(f"{request.new_pod}-m{place}")
            leases[member] = self._new_lease(request.model_copy(update={"new_pod": name}))
            self._line.enter(member)
            self._memory.touch(member)
        self._ladder.serve_line()
        return None

    def _new_lease(self, request: ClaimRequest) -> Lease:
        now, priority = self._memory.now, max(-PRIORITIES, min(PRIORITIES, request.priority))
        return Lease(
            state="waiting",
            tag=request.tag,
            caller=request.caller,
            weight=request.weight,
            image=request.image,
            fingerprint=request.fingerprint,
            hold_ms=milliseconds(request.hold_s),
            priority=priority,
            rank=self._line.next_rank(priority),
            arrival=now,
            deadline=now + milliseconds(request.wait_timeout_s),
            holder=request.holder,
            waker=request.waker,
            new_pod=request.new_pod,
            limit_ms=milliseconds(request.call_limit_s),
            touched=now,
            gang=request.gang.id if request.gang else "",
            gathering=request.gang is not None,
        )

    def _again(self, lease: Lease, request: ClaimRequest) -> ClaimReply:
        lease.waker = request.waker or lease.waker
        if lease.queued:
            lease.new_pod = request.new_pod
        lease.limit_ms, lease.weight = milliseconds(request.call_limit_s), request.weight
        if lease.holder is None:
            lease.holder, lease.caller, lease.detached = request.holder, request.caller, False
        return self._advance(request.request_id, new=False)

    def _advance(self, request_id: str, new: bool) -> ClaimReply:
        memory, lease = self._memory, self._memory.leases[request_id]
        if lease.gathering and not new and memory.now >= lease.deadline:
            return self._expired(request_id)
        if lease.state == "leased":
            return self._claimed(request_id, lease)
        if lease.state == "reserved":
            if not self._resets_too_long(lease):
                return self._reserved(request_id, lease, new)
            self._ladder.free_reservation(request_id)
            lease.state = "waiting"
            if lease.gathering:
                self._line.enter(request_id)
        if not new and memory.now >= lease.deadline:
            return self._expired(request_id)
        if self._ladder.take(request_id):
            # It is leased or reserved now; which, is the ladder's business.
            if memory.leases[request_id].state == "leased":
                return self._claimed(request_id, lease)
            return self._reserved(request_id, lease, new)
        if memory.leases[request_id].state == "expired":
            return _ended(lease)
        if not lease.queued:
            self._line.enter(request_id)
        return self._wait(request_id, lease, self._ladder.make_room(lease.tag))

    def _resets_too_long(self, lease: Lease) -> bool:
        resets = self._memory.pods[lease.pod].state in (PodState.DIRTY, PodState.RECYCLING)
        return resets and self._memory.now - lease.reserved_at >= self._memory.limits.hand_over_ms

    def _claimed(self, request_id: str, lease: Lease) -> Claimed | Wait:
        if lease.gathering:
            return self._wait(request_id, lease, "")
        begins = lease.limit_ms > 0
        if begins:
            lease.answers, lease.running = lease.answers + 1, lease.running + 1
            lease.busy_until = max(lease.busy_until, self._memory.now + lease.limit_ms)
        self._memory.set_expiry(request_id)
        self._memory.touch(request_id)
        pod = self._memory.pods[lease.pod]
        return Claimed(
            pod=PodAddress(
                name=PodName(lease.pod), uid=PodUid(pod.uid), boot_id=BootId(pod.boot), endpoint=pod.endpoint
            ),
            epoch=lease.epoch,
            tag=Tag(lease.tag),
            source=Source(lease.source),
            new=begins and lease.answers == 1,
            attestation=pod.attestation,
        )

    def _reserved(self, request_id: str, lease: Lease, new: bool) -> ClaimReply:
        pod, name = self._memory.pods[lease.pod], PodName(lease.pod)
        self._memory.touch(request_id)
        if pod.state is PodState.PROMOTING:
            return Promote(pod=name)
        if pod.state is PodState.SWAPPING:
            return Swap(pod=name, image=lease.image)
        if pod.state is PodState.STARTING and pod.maker == request_id:
            return Provision(pod=name, image=pod.image)
        if not new and self._memory.now >= lease.deadline:
            self._ladder.free_reservation(request_id)
            return self._expired(request_id)
        return self._wait(request_id, lease, "")

    def _wait(self, request_id: str, lease: Lease, drain: str) -> Wait:
        self._memory.touch(request_id)
        left_ms = max(0, lease.deadline - self._memory.now)
        return Wait(left_s=left_ms / 1000, drain=PodName(drain) if drain else None)

    def _expired(self, request_id: str) -> ClaimReply:
        lease = self._memory.leases[request_id]
        if lease.gathering:
            self._ladder.end_gang(lease.gang, "expired", "deadline")
            self._ladder.serve_line()
        else:
            self._ladder.end(request_id, "expired", "deadline")
        return _ended(lease)


def _over(lease: Lease, request: ClaimRequest) -> ClaimReply | None:
    """What a request is told that is over, or is not what it says it is."""
    if lease.state == "closed" and lease.tag == "":
        return Closed()
    if lease.tag != request.tag:
        return Mismatch()
    if lease.state not in LIVE:
        return _ended(lease)
    if request.epoch is not None and (lease.state != "leased" or request.epoch != lease.epoch):
        return Lost(reason="fenced")
    return None


def _ended(lease: Lease) -> ClaimReply:
    if lease.state == "closed":
        return Closed()
    if lease.state == "expired":
        return Expired(reason="" if lease.reason == "deadline" else lease.reason)
    return Lost(reason=lease.reason)
