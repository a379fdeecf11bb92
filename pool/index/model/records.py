"""What the index remembers of a pod and of a request. Times are milliseconds of the index's clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from emberpool.pool.model.claim import Holder
from emberpool.pool.model.recycle import Attestation
from emberpool.pool.model.state import PodState, may_move

Shelf = tuple[str, ...]
"""Names one ordered set of pods: its kind, then what its members have in common."""

LeaseState = Literal["waiting", "reserved", "leased", "lost", "closed", "expired"]

LIVE: frozenset[LeaseState] = frozenset({"waiting", "reserved", "leased"})
"""States of a request that is not over."""


@dataclass
class Pod:
    """One pod; its fields are those of the scripts' record."""

    state: PodState
    image: str
    since: int
    """When it entered its state."""
    uid: str = ""
    boot: str = ""
    endpoint: str = ""
    fingerprint: str = ""
    tag: str = ""
    epoch: int = 0
    lease: str = ""
    """Request that holds it."""
    reserved: str = ""
    """Request that it is reserved for."""
    maker: str = ""
    """Request whose claim was told to create it."""
    orphan: bool = False
    """Its maker has left before it was ready, so the next request that reserves it must create it."""
    uses: int = 0
    keep_until: int = 0
    reason: str = ""
    attestation: Attestation | None = None

    def shelves(self) -> Iterator[tuple[Shelf, int]]:
        """Every ordered set that it stands in, with its score there."""
        yield ("pods", self.state), self.since
        if self.state is PodState.IDLE:
            yield from self._idle_shelves()
        elif not self.reserved:
            yield from self._free_shelves()

    def _idle_shelves(self) -> Iterator[tuple[Shelf, int]]:
        if self.tag == "":
            yield ("fresh",), self.since
            yield ("fresh", self.image), self.since
            return
        yield ("exact", self.tag, self.fingerprint, self.image), self.since
        yield ("same", self.tag, self.image), self.since
        yield ("tag", self.tag), self.since
        yield ("keep",), self.keep_until

    def _free_shelves(self) -> Iterator[tuple[Shelf, int]]:
        if self.state is PodState.STARTING:
            yield ("open", self.image), self.since
        elif self.state is PodState.STANDBY:
            yield ("standby", self.image), self.since
        elif self.state in (PodState.DIRTY, PodState.RECYCLING):
            yield ("soon", self.tag, self.image), self.since


@dataclass
class Lease:
    """One request; its fields are those of the scripts' record."""

    state: LeaseState
    tag: str = ""
    """Empty: it was released before it was ever claimed."""
    queued: bool = False
    """It stands in line."""
    pod: str = ""
    epoch: int = 0
    caller: str = ""
    weight: int = 1
    """Its caller's in line, as its last claim said."""
    image: str = ""
    fingerprint: str = ""
    hold_ms: int = 0
    priority: int = 0
    rank: int = 0
    """Its place among its caller's requests in line; lower goes first, 0 is none yet."""
    arrival: int = 0
    deadline: int = 0
    holder: Holder | None = None
    """None: restored from a pod's account, which does not know it."""
    detached: bool = False
    source: str = ""
    answers: int = 0
    """Calls that were answered with its pod."""
    expires: int = 0
    reserved_at: int = 0
    reason: str = ""
    tries: int = 0
    spent: str = ""
    """Name for a new pod that was used already."""
    waker: str = ""
    new_pod: str = ""
    limit_ms: int = 0
    running: int = 0
    busy_until: int = 0
    touched: int = 0
    gap: int = 0
    closed_epoch: int = 0
    """Epoch at which it left its pod dirty."""
    moved_epoch: int = 0
    """Epoch of the last pod that failed at first contact."""
    gang: str = ""
    """Gang that it is one of."""
    gathering: bool = False
    """Not all of that gang have their pods yet."""


@dataclass
class GangRecord:
    """One gang; its fields are those of the scripts' record."""

    members: tuple[str, ...]
    begun: int = 0
    """When it began to gather, by the line's counter; 0: it has not."""


def check_move(name: str, before: PodState, after: PodState) -> None:
    """Raises:
    ValueError: the table of pool/model/state.py does not allow the move.
    """
    if not may_move(before, after):
        raise ValueError(f"pod {name} may not go from {before} to {after}")
