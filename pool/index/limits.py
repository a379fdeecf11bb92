"""The numbers that the index's transitions go by, each with its unit and its reason."""

from pydantic import Field

from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.weight import HEAVIEST

PRIORITIES = 4096
"""Priorities lie between minus and plus this; others are taken as the nearest."""


def milliseconds(seconds: float) -> int:
    """Seconds as whole milliseconds, never below zero: the index's own unit."""
    return max(0, round(seconds * 1000))


class IndexLimits(Frozen):
    """Written into every script as constants, so that all workers of a pool must agree on them."""

    hand_over_ms: int = 1_000
    """A claim reserves a pod of its tag that has been dirty or recycling for less than this, and waits that long."""
    residency_ms: int = 1_000
    """An idle pod is not drained for another caller before it has been idle for this long: against thrash."""
    stuck_ms: int = 30_000
    """A recycle older than this is taken again by whoever asks, with a higher epoch."""
    turn: int = Field(default=HEAVIEST, ge=HEAVIEST)
    """The line's virtual time in which a caller of weight N has N grants; so no less than the highest weight."""
    lead: int = 4
    """Turns that a caller may be ahead of who waits longest and still be handed its own pods: as many grants for one of
    weight 1."""
    look: int = 16
    """Entries of an ordered set that one script looks through: keeps every step O(log n)."""
    batch: int = 32
    """Requests of the line that one script serves at most; the rest is served by the next transition."""
    tombstone_ms: int = 3_600_000
    """How long the record of an ended request answers late questions."""
    wake_ms: int = 60_000
    """How long a wake waits for its worker; waits claim again by themselves sooner than that."""
    caller_ms: int = 600_000
    """How long the line remembers what a caller was granted after it left."""
    widest_gap_ms: int = 300_000
    """The widest gap between two questions about one quiet lease."""
    fresh_keep_ms: int = 300_000
    """What a never used pod is worth against used ones when room is made: as if it were kept alive for this long."""
    outage_ms: int = 30_000
    """If nobody asked `expire` for longer than this, the index or every worker was away."""
    rebuild_ms: int = 30_000
    """For how long each page of a rebuild holds the rebuilder's lock."""
    pause_ms: int = 60_000
    """How long nothing expires after such an outage: holders get time to say that they live."""
