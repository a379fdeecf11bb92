"""How many pods a pool may hold beside what waits at the queue whose quota it lives off."""

import pytest
from pydantic import ValidationError

from emberpool.pool.model.profile import Profile
from emberpool.pool.policy.queue_share import QueueStanding, next_share, queue_share


def standing(quota: float = 8, reserved: float = 0, ours: float = 0, wanted: float = 0) -> QueueStanding:
    """A queue of eight devices."""
    return QueueStanding(quota=quota, reserved=reserved, reserved_by_us=ours, wanted=wanted)


@pytest.mark.parametrize(
    ("now", "held", "share"),
    [
        (standing(), 0, 8),
        (standing(reserved=3), 0, 5),
        (standing(reserved=5, ours=2), 2, 5),  # what the pool has of the quota is not in its own way
        (standing(reserved=8, ours=8, wanted=2), 8, 6),  # it makes way for what waits
        (standing(reserved=8, ours=2, wanted=100), 2, 1),  # down to what it keeps
        (standing(reserved=12, ours=2, wanted=1), 2, 1),  # others have borrowed
        (standing(reserved=12, ours=2), 2, 2),  # and nobody wants what the pool has
        (standing(quota=0, reserved=3, ours=3), 3, 3),  # all is borrowed
        (standing(quota=0, reserved=3, ours=3), 5, 3),  # two of its pods have no quota yet
        (standing(quota=0, reserved=3, ours=3, wanted=1), 3, 1),
        (standing(reserved=6, ours=6), 2, 4),  # four of those are another pool's
    ],
)
def test_the_share_is_what_nobody_else_has_or_wants(now: QueueStanding, held: int, share: int) -> None:
    """Of one device a pod; one pod is kept whatever waits."""
    assert queue_share(now, held, per_pod=1.0, keep=1) == share


def test_a_pod_counts_by_what_it_asks_for() -> None:
    """Whole pods only; decimals are no trap."""
    assert queue_share(standing(), 0, per_pod=3.0, keep=0) == 2
    assert queue_share(standing(quota=0.3), 0, per_pod=0.1, keep=0) == 3


def test_it_shrinks_at_once_and_grows_by_steps() -> None:
    """From eight to one in one step, and back in several."""
    assert next_share(None, 8) == 8
    assert next_share(8, 1) == 1
    steps, now = list[int](), 1
    while now < 8:
        now = next_share(now, 8)
        steps.append(now)
    assert steps == [2, 3, 4, 5, 6, 7, 8]
    assert next_share(100, 200) == 125


def test_a_profile_names_what_its_pods_take() -> None:
    """GPUs if it has any, else cores; a resource that its pods do not ask for is a mistake."""
    queue = {"cluster_queue": "research"}
    gpus = Profile.model_validate({"name": "p", "kubernetes": {"queue": queue, "gpu": {"count": 2}}})
    assert gpus.kubernetes.shared_resource == ("nvidia.com/gpu", 2.0)
    cores = Profile.model_validate({"name": "p", "kubernetes": {"queue": queue, "cpu": 0.5}})
    assert cores.kubernetes.shared_resource == ("cpu", 0.5)
    both = {"queue": {**queue, "resource": "cpu"}, "gpu": {"count": 2}, "cpu": 4}
    assert Profile.model_validate({"name": "p", "kubernetes": both}).kubernetes.shared_resource == ("cpu", 4.0)
    with pytest.raises(ValidationError, match="nothing that these pods take"):
        Profile.model_validate({"name": "p", "kubernetes": {"queue": {**queue, "resource": "amd.com/gpu"}}})
