"""What the index remembers, and the one way to change a pod."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.model.ordered import Ordered
from emberpool.pool.index.model.records import GangRecord, Lease, LeaseState, Pod, Shelf, check_move
from emberpool.pool.model.state import PodState

Clock = Callable[[], int]
"""Says the time, in milliseconds."""


@dataclass
class Targets:
    """The pool's share, as the manager wrote it last."""

    version: int
    ceiling: int
    min_warm: int


@dataclass
class Memory:
    """All of a pool. Lists that a worker blocks on are here too, as are the times at which things are forgotten."""

    limits: IndexLimits
    clock: Clock
    generation: bool = False
    rebuilder: str = ""
    """Who holds the rebuild lock."""
    targets: Targets | None = None
    pods: dict[str, Pod] = field(default_factory=dict[str, Pod])
    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])
    gangs: dict[str, GangRecord] = field(default_factory=dict[str, GangRecord])
    shelves: dict[Shelf, Ordered] = field(default_factory=dict[Shelf, Ordered])
    expiry: Ordered = field(default_factory=Ordered)
    quiet: Ordered = field(default_factory=Ordered)
    deadlines: Ordered = field(default_factory=Ordered)
    wakes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    chores: int = 0
    """How many there have been."""
    caller_times: dict[str, int] = field(default_factory=dict[str, int])
    line_time: int = 0
    ranks: int = 0
    expired_at: int | None = None
    expiry_paused: bool = False
    ends: Ordered = field(default_factory=Ordered)
    """What is forgotten by itself, `KIND:NAME`, by the last millisecond in which it is known."""
    now: int = 0
    """The time of the transition that runs."""

    def begin(self) -> None:
        """A transition begins: look at the clock, and forget what is over."""
        self.now = self.clock()
        for entry in self.ends.up_to(self.now - 1, len(self.ends)):
            self.ends.discard(entry)
            kind, _, name = entry.partition(":")
            self._forget(kind, name)

    def _forget(self, kind: str, name: str) -> None:
        kept: dict[str, dict[str, Any]] = {
            "lease": self.leases,
            "gang": self.gangs,
            "caller": self.caller_times,
            "wake": self.wakes,
        }
        if kind in kept:
            kept[kind].pop(name, None)
        elif kind == "expired_at":
            self.expired_at = None
        elif kind == "expiry_paused":
            self.expiry_paused = False
        else:
            self.rebuilder = ""

    def keep_for(self, entry: str, ms: int) -> None:
        """Forget something after this time, unless it is said again."""
        self.ends.add(entry, self.now + ms)

    # Ordered sets of pods

    def shelf(self, *which: str) -> Ordered:
        """A set of pods, empty if there is none."""
        return self.shelves.get(which) or Ordered()

    def _shelve(self, name: str, pod: Pod) -> None:
        for shelf, score in pod.shelves():
            self.shelves.setdefault(shelf, Ordered()).add(name, score)

    def _unshelve(self, name: str, pod: Pod) -> None:
        for shelf, _ in pod.shelves():
            self.shelves[shelf].discard(name)
            if not self.shelves[shelf]:
                del self.shelves[shelf]

    # Pods

    def change(self, name: str, state: PodState | None = None, **edits: Any) -> None:
        """Edit a pod and move it to a state, if one is given.

        Raises:
            ValueError: the move is not allowed.
        """
        pod = self.pods[name]
        moved = state is not None and state is not pod.state
        self._unshelve(name, pod)
        if state is not None and moved:
            check_move(name, pod.state, state)
            pod.state, pod.since = state, self.now
        for one, value in edits.items():
            setattr(pod, one, value)
        self._shelve(name, pod)
        if moved and state in (PodState.DIRTY, PodState.DRAINING):
            self.chores += 1

    def add_pod(self, name: str, pod: Pod) -> None:
        """A pod that was not known."""
        self.pods[name] = pod
        self._shelve(name, pod)

    def drop_pod(self, name: str) -> None:
        """Forget a pod that is gone."""
        self._unshelve(name, self.pods.pop(name))

    def soil(self, name: str, reason: str) -> None:
        """The pod is dirty, and nobody's; no older epoch is accepted after this."""
        pod = self.pods[name]
        self.change(name, PodState.DIRTY, epoch=pod.epoch + 1, lease="", reserved="", reason=reason)

    # Requests

    def touch(self, request_id: str) -> None:
        """A call of the request came; a detached one is not asked about."""
        lease = self.leases[request_id]
        lease.touched, lease.gap = self.now, 0
        if not lease.detached:
            self.quiet.add(request_id, self.now)

    def set_expiry(self, request_id: str) -> None:
        """It lives until the last call that runs has had its limit, and its hold after that."""
        lease = self.leases[request_id]
        busy = lease.busy_until if lease.running > 0 else 0
        gathering = lease.deadline if lease.gathering else 0
        lease.expires = max(self.now, gathering, busy) + lease.hold_ms
        self.expiry.add(request_id, lease.expires)

    def close(self, request_id: str, state: LeaseState, reason: str) -> None:
        """The request, which stands in no line, is over; its record stays for late questions."""
        lease = self.leases[request_id]
        for due in (self.expiry, self.deadlines, self.quiet):
            due.discard(request_id)
        lease.state, lease.reason = state, reason
        self.keep_for(f"lease:{request_id}", self.limits.tombstone_ms)

    def wake(self, request_id: str) -> None:
        """Tell the worker where the request waits."""
        waker = self.leases[request_id].waker
        if waker:
            self.wakes.setdefault(waker, []).append(request_id)
            self.keep_for(f"wake:{waker}", self.limits.wake_ms)

    # Places

    @property
    def ceiling(self) -> int:
        """Most pods; zero before the first targets."""
        return self.targets.ceiling if self.targets else 0

    @property
    def place_free(self) -> bool:
        """Whether one more pod fits under the ceiling."""
        return len(self.pods) < self.ceiling

    @property
    def staying(self) -> int:
        """Pods that do not drain."""
        return len(self.pods) - len(self.shelf("pods", PodState.DRAINING))

    @property
    def over_ceiling(self) -> bool:
        """Whether the pool is still too large once what drains is gone; never before the first targets."""
        return self.targets is not None and self.staying > self.targets.ceiling
