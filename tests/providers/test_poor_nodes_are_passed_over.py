"""Which nodes new pods are asked to keep away from; time is an argument."""

from emberpool.pool.providers.kubernetes.poor_nodes import FORGOTTEN_S, MOST, PoorNodes


def test_one_failure_is_bad_luck() -> None:
    """Two within minutes are not; a pod that serves there makes it a node like others."""
    nodes = PoorNodes()
    nodes.failed("a", 0.0)
    nodes.failed("b", 0.0)
    assert nodes.avoided(1.0) == ()
    nodes.failed("a", 1.0)
    assert nodes.avoided(2.0) == ("a",)
    nodes.served("a")
    nodes.failed("a", 3.0)
    assert nodes.avoided(4.0) == ()


def test_failures_are_forgotten() -> None:
    """Each by itself: two that lie far apart are not two, and a node is tried again."""
    nodes = PoorNodes()
    nodes.failed("a", 0.0)
    nodes.failed("a", FORGOTTEN_S - 1.0)
    assert nodes.avoided(FORGOTTEN_S - 1.0) == ("a",)
    assert nodes.avoided(FORGOTTEN_S + 1.0) == ()
    nodes.failed("a", FORGOTTEN_S + 2.0)
    assert nodes.avoided(FORGOTTEN_S + 2.0) == ("a",)
    assert nodes.avoided(3 * FORGOTTEN_S) == ()


def test_a_manifest_names_a_few() -> None:
    """The latest to fail, and no more than stand in a manifest with ease."""
    nodes = PoorNodes()
    for number in range(MOST + 5):
        for _ in range(2):
            nodes.failed(f"n{number}", float(number))
    assert nodes.avoided(20.0) == tuple(f"n{number}" for number in range(MOST + 4, 4, -1))
