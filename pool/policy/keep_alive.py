"""How long an idle used pod is worth keeping for the caller that used it last. No clock, no I/O.

A loop comes back after about the same time: an agent's model thinks, a trainer updates its weights. A pod kept a little
longer than that is reused; one kept much longer holds a place that others need.
"""

from collections.abc import Sequence

MARGIN = 1.5
"""A pod is kept for this many times the gap after which nearly every return had come."""
SHARE = 0.95
"""Nearly every: this share of the gaps seen."""
ENOUGH = 5
"""Gaps seen before they count for more than the profile's own figure."""


def keep_alive_s(profile_s: float, gaps_s: Sequence[float] = ()) -> float:
    """Seconds to keep an idle pod: fitted to the gaps between a caller's uses, never above the profile's figure.

    Raises:
        ValueError: a figure is negative.
    """
    if profile_s < 0 or any(gap < 0 for gap in gaps_s):
        raise ValueError("times must not be negative")
    if len(gaps_s) < ENOUGH:
        return profile_s
    ordered = sorted(gaps_s)
    typical = ordered[min(len(ordered) - 1, int(SHARE * len(ordered)))]
    return min(profile_s, MARGIN * typical)


def deadline_ms(idle_since_ms: int, keep_s: float) -> int:
    """When an idle pod is no longer worth its place, in the index's own time."""
    return idle_since_ms + round(keep_s * 1000)
