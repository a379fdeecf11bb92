"""A plan keeps the warm target within the ceiling, a few pods at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberpool.pool.index.contract import PoolCounts
from emberpool.pool.model.state import PodState
from emberpool.pool.policy.plan import BATCH, Plan, plan_pool


def counts(ceiling: int = 10, min_warm: int = 2, idle_fresh: int = 0, waiting: int = 0, **states: int) -> PoolCounts:
    """Counts of a pool; states by name."""
    return PoolCounts(
        by_state={PodState(name): number for name, number in states.items()},
        idle_fresh=idle_fresh,
        waiting=waiting,
        leases=states.get("leased", 0),
        ceiling=ceiling,
        min_warm=min_warm,
        targets_version=1,
        oldest_wait_ms=0,
    )


def test_an_empty_pool_is_filled_to_its_target() -> None:
    """What is missing to the warm target is created."""
    assert plan_pool(counts()) == Plan(create=2)


def test_pods_on_their_way_count() -> None:
    """Fresh, standby and starting pods are not created again."""
    assert plan_pool(counts(min_warm=3, idle_fresh=1, idle=1, starting=1, standby=1)) == Plan()


def test_used_pods_are_not_free() -> None:
    """An idle pod that only its last caller can use does not replace a fresh one."""
    assert plan_pool(counts(idle=5)) == Plan(create=2)


def test_dying_pods_hold_their_places() -> None:
    """A draining pod counts under the ceiling until it is gone."""
    assert plan_pool(counts(ceiling=3, leased=1, draining=1)) == Plan(create=1)


def test_who_waits_goes_first() -> None:
    """While requests stand in line nothing is created for the warm target."""
    assert plan_pool(counts(waiting=1)) == Plan()


def test_above_the_ceiling_idle_pods_retire() -> None:
    """When the ceiling sinks, idle pods go, leased ones do not."""
    assert plan_pool(counts(ceiling=3, leased=4, idle=2)) == Plan(retire=2)


def test_a_plan_is_small() -> None:
    """One plan creates at most a batch, whatever is missing."""
    assert plan_pool(counts(ceiling=1000, min_warm=500)) == Plan(create=BATCH)
    assert plan_pool(counts(ceiling=1000, min_warm=500), batch=3) == Plan(create=3)


def test_a_batch_of_none_is_refused() -> None:
    """A batch below one is a mistake."""
    with pytest.raises(ValueError, match="batch"):
        plan_pool(counts(), batch=0)


@given(
    ceiling=st.integers(0, 50),
    min_warm=st.integers(0, 60),
    waiting=st.integers(0, 3),
    states=st.dictionaries(st.sampled_from([s.value for s in PodState if s is not PodState.GONE]), st.integers(0, 20)),
)
def test_no_plan_breaks_the_ceiling(ceiling: int, min_warm: int, waiting: int, states: dict[str, int]) -> None:
    """Whatever the counts, a plan creates within the ceiling, retires only what is idle, and does not do both."""
    before = counts(ceiling, min_warm, 0, waiting, **states)
    plan = plan_pool(before)
    total = sum(states.values())
    assert 0 <= plan.create <= BATCH and 0 <= plan.retire <= BATCH
    assert not (plan.create and plan.retire)
    assert plan.create == 0 or total + plan.create <= ceiling
    assert plan.retire <= states.get("idle", 0) + states.get("standby", 0)


def test_standby_pods_are_kept_besides() -> None:
    """What stands by does not count for the warm target, nor the other way round; the ceiling holds for both."""
    assert plan_pool(counts(), standby=2) == Plan(create=2, standby=2)
    assert plan_pool(counts(idle_fresh=2, idle=2, standby=1), standby=2) == Plan(standby=1)
    assert plan_pool(counts(standby=2), standby=2) == Plan(create=2)
    assert plan_pool(counts(ceiling=3), standby=2) == Plan(create=2, standby=1)
    assert plan_pool(counts(ceiling=0, min_warm=0), standby=2) == Plan()


def test_a_standby_pod_that_starts_counts() -> None:
    """A starting pod that the warm target does not need is on its way to stand by."""
    assert plan_pool(counts(min_warm=1, idle_fresh=1, idle=1, starting=1), standby=1) == Plan()


def test_nothing_is_set_standing_by_while_requests_wait() -> None:
    """Places are those of who stands in line."""
    assert plan_pool(counts(waiting=1), standby=2) == Plan()
