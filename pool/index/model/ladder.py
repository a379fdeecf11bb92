"""Serving requests: the claim's ladder, and what follows when a pod or a place becomes free."""

from typing import Any

from emberpool.pool.index.contract import BecameIdle, FreedReply, HandedTo, MustDrain
from emberpool.pool.index.model.line import Line
from emberpool.pool.index.model.memory import Memory
from emberpool.pool.index.model.records import GangRecord, Lease, LeaseState, Pod, Shelf
from emberpool.pool.model.claim import Source
from emberpool.pool.model.ids import RequestId
from emberpool.pool.model.state import PodState, may_serve


class Ladder:
    """Gives pods and places to requests, in the order of docs/concepts.md."""

    def __init__(self, memory: Memory, line: Line) -> None:
        self._memory, self._line = memory, line

    # Leases and reservations

    def end(self, request_id: str, state: LeaseState, reason: str) -> None:
        """A request is over, wherever it stands."""
        self._line.leave(request_id)
        self._memory.close(request_id, state, reason)

    def lease(self, request_id: str, name: str, source: str) -> None:
        """The pod is the request's until its hold is over.

        Raises:
            ValueError: the pod was used under another tag.
        """
        memory = self._memory
        lease, pod = memory.leases[request_id], memory.pods[name]
        if not may_serve(pod.tag, lease.tag):
            raise ValueError(f"pod {name} was used under another tag")
        if lease.state != "reserved":
            self._line.charge(lease)
        self._line.leave(request_id)
        memory.deadlines.discard(request_id)
        # Higher than on any pod that the request had before, so that a late word about that one is not taken for this;
        # and at least the time, so that this also holds for those that an index which was lost knew of.
        memory.change(
            name,
            PodState.LEASED,
            lease=request_id,
            reserved="",
            maker="",
            orphan=False,
            tag=lease.tag,
            epoch=max(pod.epoch + 1, lease.epoch + 1, memory.now),
            uses=pod.uses + 1,
            reason="",
            fingerprint=lease.fingerprint or pod.fingerprint,
        )
        lease.state, lease.pod, lease.epoch, lease.source = "leased", name, pod.epoch, source
        lease.answers, lease.running, lease.busy_until = 0, 0, 0
        memory.set_expiry(request_id)
        if lease.gathering:
            self._whole(memory.gangs[lease.gang])

    def _whole(self, gang: GangRecord) -> None:
        """If every member that still gathers has its pod now, all of those learn of it at once."""
        memory = self._memory
        members = {name: memory.leases[name] for name in gang.members if name in memory.leases}
        gathered = {name: lease for name, lease in members.items() if lease.gathering}
        if any(lease.state != "leased" for lease in gathered.values()):
            return
        for name, lease in gathered.items():
            lease.gathering = False
            memory.set_expiry(name)
            memory.wake(name)
            memory.keep_for(f"gang:{lease.gang}", memory.limits.tombstone_ms)

    def being_made(self, request_id: str) -> bool:
        """Whether a pod is made, promoted or swapped for the request, which has no deadline while its holder lives."""
        lease = self._memory.leases[request_id]
        if lease.state != "reserved":
            return False
        pod = self._memory.pods[lease.pod]
        return pod.state in (PodState.PROMOTING, PodState.SWAPPING) or pod.maker == request_id

    def holder_lost(self, request_id: str, reason: str) -> None:
        """Whoever held a pod that broke has lost it; one whose gang still gathers has not begun: it gets another."""
        if self._memory.leases[request_id].gathering:
            self._memory.expiry.discard(request_id)
            self.stand_again(request_id)
        else:
            self.end(request_id, "lost", reason)

    def end_gang(self, name: str, state: LeaseState, reason: str) -> None:
        """End every member of a gang that is not whole, and free all that they have gathered; first who waits."""
        memory = self._memory
        for standing in ("waiting", "reserved", "leased"):
            for member in memory.gangs[name].members:
                lease = memory.leases.get(member)
                if lease is None or lease.state != standing or not lease.gathering:
                    continue
                if standing == "leased":
                    memory.soil(lease.pod, reason)
                    lease.closed_epoch = memory.pods[lease.pod].epoch
                elif standing == "reserved":
                    self.free_reservation(member)
                lease.gathering = False
                self.end(member, state, reason)
                memory.wake(member)
        memory.keep_for(f"gang:{name}", memory.limits.tombstone_ms)

    def _end_misfit(self, lease: Lease) -> bool:
        """End a gang that the ceiling can never hold, rather than let everybody wait behind it."""
        ceiling = self._memory.ceiling
        if not lease.gathering or ceiling == 0 or len(self._memory.gangs[lease.gang].members) <= ceiling:
            return False
        self.end_gang(lease.gang, "expired", "gang_over_ceiling")
        return True

    def give(self, request_id: str, name: str) -> HandedTo:
        """The pod that was reserved for the request is ready."""
        self.lease(request_id, name, self._memory.leases[request_id].source)
        self._memory.wake(request_id)
        return HandedTo(request_id=RequestId(request_id))

    def _reserve(
        self, request_id: str, name: str, source: Source, timed: bool, state: PodState | None = None, **edits: Any
    ) -> None:
        """The pod will be the request's; `timed` (or detached): until then it still waits, with its deadline."""
        lease = self._memory.leases[request_id]
        self._line.charge(lease)
        self._line.leave(request_id)
        self._memory.change(name, state, reserved=request_id, **edits)
        lease.state, lease.pod, lease.source, lease.reserved_at = "reserved", name, source, self._memory.now
        if timed or lease.detached:
            self._memory.deadlines.add(request_id, lease.deadline)
        else:
            self._memory.deadlines.discard(request_id)

    def _reserve_starting(self, request_id: str, name: str) -> None:
        """Who reserves a starting pod that nobody is making makes it; else it waits for it."""
        pod = self._memory.pods[name]
        maker = request_id if pod.orphan else pod.maker
        self._reserve(request_id, name, Source.COLD, not pod.orphan, maker=maker, orphan=False)

    def free_reservation(self, request_id: str) -> None:
        """The request wants its reserved pod no more; a starting one goes to who waits for its image."""
        lease = self._memory.leases[request_id]
        name, lease.pod = lease.pod, ""
        pod = self._memory.pods.get(name)
        if pod is None or pod.reserved != request_id:
            return
        if pod.maker == request_id:
            self._memory.change(name, reserved="", maker="", orphan=True)
        else:
            self._memory.change(name, reserved="")
        waiter = self._line.first_of_image(pod.image) if pod.state is PodState.STARTING else None
        if waiter is not None:
            self._reserve_starting(waiter, name)
            self._memory.wake(waiter)

    def stand_again(self, request_id: str) -> None:
        """Back in line, at its old rank and deadline."""
        self._line.enter(request_id)
        self._memory.wake(request_id)

    # The ladder

    def take(self, request_id: str) -> bool:
        """True if the request is leased or reserved now. A newcomer never takes what those who wait could use."""
        lease = self._memory.leases[request_id]
        if self._end_misfit(lease) or not self._line.servable(request_id):
            return False
        head = self._line.first()
        same_gang = head is not None and lease.gang != "" and self._memory.leases[head].gang == lease.gang
        first = head is None or head == request_id or same_gang
        member = None if first else self._line.gatherer()
        own = first or (self._line.in_share(lease.caller) and not (member and member.tag == lease.tag))
        unused = first or self._line.rivals_of(request_id) == 0
        return (
            (own and self._take_same(request_id, lease))
            or (unused and self._take_unused(request_id, lease))
            or (own and self._take_other_image(request_id, lease))
            or (first and self._take_place(request_id, lease))
        )

    def _take_same(self, request_id: str, lease: Lease) -> bool:
        shelf = self._memory.shelf
        name = shelf("exact", lease.tag, lease.fingerprint, lease.image).last()
        name = name or shelf("same", lease.tag, lease.image).last()
        if name is not None:
            self.lease(request_id, name, Source.REUSE)
            return True
        name = shelf("soon", lease.tag, lease.image).last()
        if name is None or self._memory.now - self._memory.pods[name].since >= self._memory.limits.hand_over_ms:
            return False
        self._reserve(request_id, name, Source.REUSE, timed=True)
        return True

    def _take_unused(self, request_id: str, lease: Lease) -> bool:
        shelf = self._memory.shelf
        if (name := shelf("fresh", lease.image).last()) is not None:
            self.lease(request_id, name, Source.FRESH)
        elif (name := shelf("standby", lease.image).last()) is not None:
            self._reserve(request_id, name, Source.STANDBY, timed=False, state=PodState.PROMOTING)
        elif (name := shelf("open", lease.image).first()) is not None:
            self._reserve_starting(request_id, name)
        return name is not None

    def _take_other_image(self, request_id: str, lease: Lease) -> bool:
        name = self._memory.shelf("tag", lease.tag).first()
        if name is None:
            return False
        # A new epoch, so that emberd can tell this swap from one that comes late.
        epoch = self._memory.pods[name].epoch + 1
        self._reserve(request_id, name, Source.SWAP, timed=False, state=PodState.SWAPPING, epoch=epoch)
        return True

    def _take_place(self, request_id: str, lease: Lease) -> bool:
        if not self._memory.place_free:
            return False
        name = self._new_name(lease)
        self._memory.add_pod(name, Pod(PodState.STARTING, lease.image, self._memory.now, maker=request_id))
        self._reserve(request_id, name, Source.COLD, timed=False)
        return True

    def _new_name(self, lease: Lease) -> str:
        """A name is used once."""
        name = lease.new_pod
        while name == lease.spent or name in self._memory.pods:
            lease.tries += 1
            name = f"{lease.new_pod}-{lease.tries}"
        lease.spent = lease.new_pod
        return name

    # What becomes free

    def serve_line(self) -> None:
        """Serve from the head for as long as there is something to serve with, a batch at most."""
        for _ in range(self._memory.limits.batch):
            request_id = self._line.first()
            if request_id is None:
                return
            if self.take(request_id):
                self._memory.wake(request_id)
            elif self._memory.leases[request_id].state != "expired":
                return

    def places_needed(self) -> int:
        """Requests in line against the places that they will get anyway."""
        ceiling = self._memory.ceiling
        return 0 if ceiling == 0 else len(self._line) - max(0, ceiling - self._memory.staying)

    def make_room(self, tag: str) -> str:
        """Drain the idle pod that is worth least, never one of `tag`, if the line needs its place; its name, or ""."""
        if self.places_needed() <= 0:
            return ""
        used, fresh = self._first_resident(("keep",), tag), self._first_resident(("fresh",), "")
        pods = self._memory.pods
        if used and fresh:
            fresh_until = pods[fresh].since + self._memory.limits.fresh_keep_ms
            name = fresh if fresh_until < pods[used].keep_until else used
        else:
            # A standby pod of an image that nobody waits for holds little, but it holds a place.
            name = used or fresh or self._first_resident(("pods", PodState.STANDBY), "")
        if name:
            self._memory.change(name, PodState.DRAINING, reason="place_needed")
        return name

    def _first_resident(self, shelf: Shelf, tag: str) -> str:
        for name in self._memory.shelf(*shelf).head(self._memory.limits.look):
            pod = self._memory.pods[name]
            if self._memory.now - pod.since >= self._memory.limits.residency_ms and (tag == "" or pod.tag != tag):
                return name
        return ""

    def condemn(self, name: str, reason: str) -> None:
        """Nobody can be given this pod any more: its holder has lost it, who reserved it stands in line again."""
        pod = self._memory.pods[name]
        holder, waiter = pod.lease, pod.reserved
        if pod.state is PodState.LEASED:
            self._memory.soil(name, reason)
            if holder in self._memory.leases:
                self.holder_lost(holder, reason)
        elif waiter:
            self._memory.change(name, reserved="", maker="")
        if pod.state is not PodState.DRAINING:
            self._memory.change(name, PodState.DRAINING, reason=reason)
        if waiter:
            self.stand_again(waiter)

    def settle(self, name: str) -> FreedReply:
        """A pod fit for use that nobody reserved: to who waits for one like it, else idle, unless the line needs its
        place more."""
        memory, pod = self._memory, self._memory.pods[name]
        if memory.over_ceiling:
            return self._drained(name, "over_ceiling")
        if pod.tag == "":
            waiter, other = self._line.first_of_image(pod.image), None
        else:
            waiter, other = self._line.first_of_tag(pod.tag, pod.image)
        if waiter is not None:
            self.lease(waiter, name, Source.REUSE if pod.tag else Source.COLD)
            memory.wake(waiter)
            return HandedTo(request_id=RequestId(waiter))
        if pod.tag and other is None and self.places_needed() > 0:
            return self._drained(name, "place_needed")
        memory.change(name, PodState.IDLE, reason="")
        if other is not None:
            memory.wake(other)
        return BecameIdle()

    def _drained(self, name: str, reason: str) -> MustDrain:
        self._memory.change(name, PodState.DRAINING, reason=reason)
        return MustDrain(reason=reason)
