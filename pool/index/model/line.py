"""The line: fair between callers by the grants that each has had, for its weight; within one, first come first
served, by priority."""

from collections.abc import Sequence

from emberpool.pool.index.model.memory import Memory
from emberpool.pool.index.model.ordered import Ordered
from emberpool.pool.index.model.records import Lease

PRIORITY_STEP = 2**40
"""Ranks between two priorities: more requests than ever stand in one line."""


def after_grant(time: int, weight: int, turn: int) -> int:
    """A caller's virtual time once it had one more grant: it has `weight` of them in each turn, all as nearly alike as
    whole numbers can be."""
    gone = time % turn
    ends = (gone * weight // turn + 1) * turn
    return time - gone + -(-ends // weight)


class Line:
    """Requests that wait. A caller's virtual time is what its grants have cost it, never behind the line's own."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.callers = Ordered()
        """Callers that wait, by virtual time."""
        self.arrivals = Ordered()
        """Requests that wait, by when they came."""
        self.gathering = Ordered()
        """Gangs that lack pods and have begun to gather, by when they began."""
        self._by_rank: dict[tuple[str, str], Ordered] = {}

    def clear(self) -> None:
        """Nobody waits."""
        self.callers, self.arrivals, self.gathering, self._by_rank = Ordered(), Ordered(), Ordered(), {}

    def __len__(self) -> int:
        return len(self.arrivals)

    def first(self) -> str | None:
        """The request whose turn it is."""
        gang = self.gathering.first()
        if gang is not None:
            return self._those("gang", gang).first()
        caller = self.callers.first()
        return None if caller is None else self._those("of", caller).first()

    def next_rank(self, priority: int) -> int:
        """A place behind all that came before with this priority."""
        self._memory.ranks += 1
        return self._memory.ranks - priority * PRIORITY_STEP

    def in_share(self, caller: str) -> bool:
        """Whether a caller may take its own pods past the others."""
        first = self.callers.lowest()
        if first is None or self._time_of(caller) - first <= self._memory.limits.lead * self._memory.limits.turn:
            return True
        member = self.gatherer()
        return member is not None and member.caller == caller

    def gatherer(self) -> Lease | None:
        """The first member of the gang that gathers, if one does."""
        head = self.first() if self.gathering.first() is not None else None
        return None if head is None else self._memory.leases[head]

    def servable(self, request_id: str) -> bool:
        """Whether the request may be served now: one of a gang only while that gang is the head, and then it begins."""
        lease = self._memory.leases[request_id]
        gang = self._memory.gangs.get(lease.gang)
        if gang is None:
            return True
        if (gathers := self.gathering.first()) is not None:
            return gathers == lease.gang
        head = self.first()
        if head is None or self._memory.leases[head].gang != lease.gang or len(gang.members) > self._memory.ceiling:
            return False
        self._memory.ranks += 1
        gang.begun = self._memory.ranks
        self.gathering.add(lease.gang, gang.begun)
        return True

    def charge(self, lease: Lease) -> None:
        """A grant costs its caller its part of a turn, but only while somebody waits."""
        first, caller = self.callers.lowest(), lease.caller
        if first is None:
            return
        after = after_grant(self._time_of(caller), lease.weight, self._memory.limits.turn)
        self._memory.line_time = max(first, self._memory.line_time)
        self._remember(caller, after)
        if caller in self.callers:
            self.callers.add(caller, after)

    def enter(self, request_id: str) -> None:
        """Stand in line, at the old rank if it had one."""
        lease = self._memory.leases[request_id]
        if lease.rank == 0:
            lease.rank = self.next_rank(lease.priority)
        if lease.caller not in self.callers:
            self.callers.add(lease.caller, self._time_of(lease.caller))
        for which in _groups(lease):
            self._by_rank.setdefault(which, Ordered()).add(request_id, lease.rank)
        gang = self._memory.gangs.get(lease.gang)
        if gang is not None and gang.begun:
            self.gathering.add(lease.gang, gang.begun)
        self.arrivals.add(request_id, lease.arrival)
        self._memory.deadlines.add(request_id, lease.deadline)
        lease.state, lease.pod, lease.queued = "waiting", "", True

    def leave(self, request_id: str) -> None:
        """Go out of line, if it stands there."""
        lease = self._memory.leases[request_id]
        if not lease.queued:
            return
        lease.queued = False
        for which in _groups(lease):
            self._by_rank[which].discard(request_id)
            if not self._by_rank[which]:
                del self._by_rank[which]
        if lease.gang and not self._those("gang", lease.gang):
            self.gathering.discard(lease.gang)
        self.arrivals.discard(request_id)
        self._memory.deadlines.discard(request_id)
        if not self._those("of", lease.caller):
            self._remember(lease.caller, self.callers.score(lease.caller) or 0)
            self.callers.discard(lease.caller)

    def rivals_of(self, request_id: str) -> int:
        """How many others wait for the same image."""
        lease = self._memory.leases[request_id]
        return len(self._those("image", lease.image)) - (1 if lease.queued else 0)

    def first_of_image(self, image: str) -> str | None:
        """Who should get a pod of this image that was never used: in the line's order as far as it is looked through,
        after that who came first."""
        asking = self._those("image", image)
        if not asking:
            return None
        callers = self.callers.head(self._memory.limits.look)
        heads = [self.first(), *(self._those("of", caller).first() for caller in callers)]
        found = self._first_servable([head for head in heads if head is not None], image)
        return found or self._first_servable(asking.head(self._memory.limits.look))

    def first_of_tag(self, tag: str, image: str) -> tuple[str | None, str | None]:
        """Who of the tag, within its caller's share, asks for this image; and, if nobody does, who for another one."""
        asking = self._those("tag", tag).head(self._memory.limits.look)
        if not asking or not self.in_share(self._memory.leases[asking[0]].caller):
            return None, None
        same = self._first_servable(asking, image)
        return same, None if same else self._first_servable(asking)

    def _first_servable(self, requests: Sequence[str], image: str | None = None) -> str | None:
        for request_id in requests:
            if image in (None, self._memory.leases[request_id].image) and self.servable(request_id):
                return request_id
        return None

    def _those(self, kind: str, which: str) -> Ordered:
        return self._by_rank.get((kind, which)) or Ordered()

    def _time_of(self, caller: str) -> int:
        own = self.callers.score(caller)
        if own is not None:
            return own
        return max(self._memory.caller_times.get(caller, 0), self._memory.line_time)

    def _remember(self, caller: str, time: int) -> None:
        self._memory.caller_times[caller] = time
        self._memory.keep_for(f"caller:{caller}", self._memory.limits.caller_ms)


def _groups(lease: Lease) -> tuple[tuple[str, str], ...]:
    groups = ("of", lease.caller), ("tag", lease.tag), ("image", lease.image)
    return (*groups, ("gang", lease.gang)) if lease.gang else groups
