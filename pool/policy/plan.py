"""How many pods to create and to retire: the pool's counts in, a small plan out. No clock, no I/O.

A plan is carried out by workers and looked at again a second later, so it moves a step towards the goal, not all the
way: what was planned on old counts is soon planned anew on better ones.
"""

from emberpool.pool.index.contract import PoolCounts
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.state import PodState

BATCH = 8
"""Most pods that one plan creates, and most that it retires."""


class Plan(Frozen):
    """What to do next."""

    create: int = 0
    """Pods to create for the warm target."""
    standby: int = 0
    """Pods to create that stand by."""
    retire: int = 0
    """Idle pods too many: `retire_idle` names them."""


def plan_pool(counts: PoolCounts, min_warm: int | None = None, batch: int = BATCH, standby: int = 0) -> Plan:
    """Keep `min_warm` pods free (default: the index's own target) and `standby` more standing by, under the ceiling.

    More standby pods than that count as free ones. The warm target goes first where places are short.

    A used idle pod serves its last caller only, so it counts as free only where no place is left to add a fresh one:
    it is then the pod that room is made with. While requests stand in line, places are theirs and nothing is created.

    Raises:
        ValueError: `batch` is below 1.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    wanted = counts.min_warm if min_warm is None else min_warm
    total = sum(counts.by_state.values())
    dying = _in(counts, PodState.DRAINING)
    excess = min(total - dying - counts.ceiling, _in(counts, PodState.IDLE) + _in(counts, PodState.STANDBY))
    if excess > 0:
        return Plan(retire=min(excess, batch))
    if counts.waiting:
        return Plan()
    # Pods that start are as good as free, though some are reserved: the claims that took them say so by and by.
    standing = _in(counts, PodState.STANDBY)
    coming = _in(counts, PodState.STARTING) + max(0, standing - standby)
    missing = wanted - counts.idle_fresh - coming
    places = counts.ceiling - total
    create = max(0, min(missing, places, batch))
    # Starting pods that the warm target does not need may be standby ones: they are on their way too.
    lacking = standby - standing - min(_in(counts, PodState.STARTING), max(0, -missing))
    return Plan(create=create, standby=max(0, min(lacking, places - create, batch - create)))


def _in(counts: PoolCounts, state: PodState) -> int:
    return counts.by_state.get(state, 0)
