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
    retire: int = 0
    """Idle pods too many: `retire_idle` names them."""


def plan_pool(counts: PoolCounts, min_warm: int | None = None, batch: int = BATCH) -> Plan:
    """Keep `min_warm` pods free (default: the index's own target), never above the ceiling.

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
    coming = _in(counts, PodState.STARTING) + _in(counts, PodState.STANDBY)
    missing = wanted - counts.idle_fresh - coming
    places = counts.ceiling - total
    return Plan(create=max(0, min(missing, places, batch)))


def _in(counts: PoolCounts, state: PodState) -> int:
    return counts.by_state.get(state, 0)
