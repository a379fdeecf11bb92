"""An idle pod is kept for about as long as its caller stays away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberpool.pool.policy.keep_alive import deadline_ms, keep_alive_s


def test_the_profile_counts_until_enough_is_known() -> None:
    """With few gaps seen, the profile's figure holds."""
    assert keep_alive_s(300, [1, 1, 1, 1]) == 300


def test_a_quick_loop_is_kept_for_little_longer_than_its_gap() -> None:
    """A caller that comes back every ten seconds is waited for fifteen."""
    assert keep_alive_s(300, [10] * 20) == 15


def test_a_rare_long_gap_does_not_hold_the_place() -> None:
    """One return in thirty that took long does not make every pod wait as long."""
    assert keep_alive_s(3600, [10] * 29 + [1000]) == 15


@given(st.floats(0, 1e6), st.lists(st.floats(0, 1e6), max_size=50))
def test_never_longer_than_the_profile(profile_s: float, gaps_s: list[float]) -> None:
    """The profile's figure is the upper bound, zero the lower."""
    assert 0 <= keep_alive_s(profile_s, gaps_s) <= profile_s


def test_negative_times_are_refused() -> None:
    """A negative time is a mistake, not zero."""
    with pytest.raises(ValueError, match="negative"):
        keep_alive_s(-1)


def test_the_deadline_is_in_the_index_time() -> None:
    """The deadline is milliseconds after the pod went idle."""
    assert deadline_ms(1000, 2.5) == 3500
