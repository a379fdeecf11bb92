"""How many pods a pool may hold beside work that waits at the queue whose quota both live off: pure functions."""

import math

from emberpool.pool.model.frozen import Frozen

CLOSE = 1e-6
"""Amounts are sums of decimals as floats: 0.3 cores hold three pods of 0.1."""


class QueueStanding(Frozen):
    """One resource of a queue at one moment; cores, bytes or devices."""

    quota: float
    reserved: float
    """Taken of it by anybody; above the quota where it is borrowed."""
    reserved_by_us: float
    """The part of it that pods of emberpool's have: nothing, where the queue does not admit them."""
    wanted: float
    """What others wait for."""


def queue_share(now: QueueStanding, held: int, per_pod: float, keep: int) -> int:
    """Pods that a pool of `held` may hold, each taking `per_pod`: what it has of the quota, with what nobody has, less
    what others wait for; never fewer than `keep`. While nothing of others waits, what it has of the quota it keeps:
    the queue may have borrowed it, so that more is reserved than its quota, and nobody asks for it back.

    Several pools on one queue each count their own pods as theirs, and each sees all that is free.
    """
    own = min(now.reserved_by_us, held * per_pod)
    room = own + now.quota - now.reserved - now.wanted
    if now.wanted <= 0:
        room = max(own, room)
    return max(keep, math.floor(room / per_pod + CLOSE))


def next_share(before: int | None, wanted: int) -> int:
    """The share to tell now: a smaller one at once, a larger one by a quarter at a time, since what is free for a
    moment is often the gap between two jobs of somebody else's."""
    if before is None or wanted <= before:
        return wanted
    return min(wanted, before + max(1, before // 4))
