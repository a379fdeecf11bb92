"""Creation of Kubernetes pods: a rate, a ceiling, a slow start, a circuit breaker; on a clock that the test turns."""

import math

from emberpool.pool.providers.kubernetes.pacing import (
    BREAK_AFTER,
    FIRST_BATCH,
    LONGEST_PAUSE_S,
    PAUSE_S,
    Pace,
)


def go(pace: Pace, count: int, now: float = 0.0, first: int = 0) -> list[str]:
    """Names of those of `count` pods that may be created now."""
    names = [f"p-{number}" for number in range(first, first + count)]
    return [name for name in names if pace.ask(name, now) is None]


def fast(at_once: int = 100) -> Pace:
    """A pace whose rate is of no account."""
    return Pace(math.inf, at_once)


def test_a_rate_is_kept() -> None:
    """Ten a second are ten in the first second after the first, however many ask."""
    pace = Pace(10.0, 1000)
    created, now = 0, 0.0
    while now <= 1.0:
        name = f"p-{created}"
        if pace.ask(name, now) is None:
            pace.settled(name, True, now)
            created += 1
        now += 0.01
    assert 10 <= created <= 11


def test_the_first_pods_go_ahead() -> None:
    """A few pods go first; each that becomes ready lets one more start beside its own successor."""
    pace = fast()
    assert len(go(pace, 50)) == FIRST_BATCH
    for name in [f"p-{number}" for number in range(FIRST_BATCH)]:
        pace.settled(name, True, 1.0)
    assert len(go(pace, 50, 1.0, first=100)) == 2 * FIRST_BATCH


def test_no_more_start_at_once_than_the_ceiling() -> None:
    """However well it goes."""
    pace = fast(at_once=6)
    for turn in range(10):
        for name in go(pace, 50, float(turn), first=turn * 100):
            pace.settled(name, True, float(turn))
    assert len(go(pace, 50, 11.0, first=5000)) == 6
    assert pace.starting == 6


def test_asking_twice_for_one_pod_counts_once() -> None:
    """A retry of a creation is the same pod."""
    pace = fast(at_once=1)
    assert pace.ask("p", 0.0) is None
    assert pace.ask("p", 0.0) is None
    assert pace.starting == 1


def test_a_pod_that_was_deleted_says_nothing() -> None:
    """It frees its place, and neither success nor failure is counted."""
    pace = fast(at_once=1)
    for turn in range(3 * BREAK_AFTER):
        assert pace.ask(f"p-{turn}", 0.0) is None
        pace.withdrawn(f"p-{turn}")
    pace.settled("of-another-worker", False, 0.0)
    assert pace.ask("next", 0.0) is None


def test_failures_in_a_row_stop_creation_for_a_while() -> None:
    """After the pause one pod is tried; if it fails the pause doubles, up to a limit; if it succeeds all goes on."""
    pace, now = fast(), 0.0
    for number in range(BREAK_AFTER):
        assert pace.ask(f"p-{number}", now) is None
        pace.settled(f"p-{number}", False, now)
    stopped = pace.ask("next", now)
    assert stopped is not None and stopped.seconds == PAUSE_S and "failed" in stopped.why
    pause = PAUSE_S
    for number in range(8):
        now += pause
        assert len(go(pace, 3, now, first=100 * number + 100)) == 1, "one pod is tried"
        pace.settled(f"p-{100 * number + 100}", False, now)
        pause = min(LONGEST_PAUSE_S, pause * 2)
        stopped = pace.ask("next", now)
        assert stopped is not None and stopped.seconds == pause
    now += pause
    assert pace.ask("good", now) is None
    pace.settled("good", True, now)
    assert len(go(pace, 9, now, first=9000)) >= 1
    pace.settled("p-9000", False, now)
    pace.settled("p-9001", True, now)
    assert len(go(pace, 9, now, first=9100)) >= 1, "one failure does not stop it"
