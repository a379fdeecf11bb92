"""How long a kubelet would hold an image swap back: on statuses as it writes them, with time as an argument."""

from fixtures.kubernetes_json import running

from emberpool.pool.providers.kubernetes.back_off import FIRST_S, FORGOTTEN_S, LONGEST_S, ROUNDING_S, held_back_s, note
from emberpool.pool.providers.kubernetes.view import STARTS_NOTE, PodView, view

IMAGES = ("one", "two")


def pod_at(swaps: int, started: float, noted: str = "", comes_back: bool = False) -> PodView:
    """A pod that was swapped to and fro, as it is after that many swaps."""
    pod = running()
    pod["metadata"]["annotations"][STARTS_NOTE] = noted
    seen = view(pod)
    update = {"restarts": swaps, "started": started, "reference": IMAGES[swaps % 2], "comes_back": comes_back}
    return seen.model_copy(update=update)


def swapped(pod: PodView, now: float) -> PodView:
    """The pod after one more swap."""
    noted = note(pod, IMAGES[(pod.restarts + 1) % 2], now)
    return pod_at(pod.restarts + 1, now, noted, pod.comes_back)


def held(pod: PodView, now: float) -> float:
    """Seconds that a swap to the other image would wait."""
    return held_back_s(pod, IMAGES[(pod.restarts + 1) % 2], now)


def test_there_and_back_and_there_is_free() -> None:
    """The kubelet counts from the second swap on, for each image by itself."""
    pod = pod_at(0, 1000.0)
    for now in (1001.0, 1002.0, 1003.0):
        assert held(pod, now) == 0.0
        pod = swapped(pod, now)
    assert held(pod, 1004.0) == FIRST_S + ROUNDING_S - 1.0
    assert held(pod, 1003.0 + FIRST_S + ROUNDING_S) == 0.0


def test_each_time_it_takes_twice_as_long() -> None:
    """Up to five minutes."""
    pod, now, waits = pod_at(0, 1000.0), 1000.0, list[float]()
    for _ in range(16):
        wait = held(pod, now)
        waits.append(wait)
        now += wait
        pod = swapped(pod, now)
    assert waits[:3] == [0.0] * 3
    assert [round(wait - ROUNDING_S) for wait in waits[3:9]] == [10, 10, 20, 20, 40, 40]
    assert max(waits) == LONGEST_S + ROUNDING_S


def test_it_is_forgotten() -> None:
    """An image that was not started for ten minutes comes as if for the first time; its note goes with the next."""
    pod = pod_at(0, 1000.0)
    for now in (1001.0, 1002.0, 1003.0):
        pod = swapped(pod, now)
    later = 1003.0 + FORGOTTEN_S
    pod = swapped(pod, later)
    assert pod.starts == f'{{"one": [{FIRST_S}, {later}]}}'


def test_a_pod_that_was_started_anew_is_reckoned_with() -> None:
    """Where its kubelet may have done so by itself, the image counts as started in another's place."""
    pod = pod_at(2, 1000.0, comes_back=True)
    away = swapped(pod, 1001.0)
    assert held(away, 1002.0) == FIRST_S + ROUNDING_S - 1.0
    assert held(swapped(pod_at(2, 1000.0), 1001.0), 1002.0) == 0.0


def test_a_note_of_somebody_elses_counts_for_nothing() -> None:
    """Whatever it is, no pod is kept from its swap by it."""
    for noted in ("", "x", "[]", "7", '{"two": 3}', '{"two": ["a", 1]}', "null"):
        assert held(pod_at(2, 1000.0, noted), 1000.0) == 0.0, noted
