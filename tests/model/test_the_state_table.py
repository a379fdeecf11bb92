"""The state table that every index and provider obeys, written out once more: a change of it must be meant."""

import pytest

from emberpool.pool.model.state import TRANSITIONS, PodState, may_move, may_serve

TABLE = """
starting   idle standby leased draining gone
standby    promoting draining gone
promoting  leased idle draining gone
idle       leased swapping draining gone
swapping   leased idle draining gone
leased     dirty gone
dirty      recycling draining gone
recycling  idle leased dirty draining gone
draining   gone
gone
"""


def test_the_table_is_the_one_agreed() -> None:
    """Every state and every move, no more and no fewer."""
    rows = [line.split() for line in TABLE.strip().splitlines()]
    assert {row[0]: set(row[1:]) for row in rows} == {str(k): {str(s) for s in v} for k, v in TRANSITIONS.items()}


@pytest.mark.parametrize("state", [s for s in PodState if s is not PodState.GONE])
def test_any_pod_may_vanish(state: PodState) -> None:
    """Every state leads to gone, since a pod may vanish at any time."""
    assert may_move(state, PodState.GONE)


def test_a_used_pod_passes_through_dirty() -> None:
    """A leased pod is never idle, recycling or draining without having been dirty first."""
    assert TRANSITIONS[PodState.LEASED] == {PodState.DIRTY, PodState.GONE}


def test_a_used_pod_serves_its_caller_only() -> None:
    """An unused pod serves anyone, a used one the tag that used it last."""
    assert may_serve("", "b") and may_serve("a", "a") and not may_serve("a", "b")
