"""A profile whose fields contradict each other is refused, with what to do about it."""

import pytest

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import parse_profiles


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{name: a, min_warm: 1, standby: 4, max_pods: 4}", "together are above max_pods"),
        ("{name: a, isolation: plain, least_tier: room}", "which has no rooms"),
        ("{name: a, least_tier: none}", "use 'room', 'restart' or 'sweep'"),
        ("{name: a, isolation: plain, least_tier: restart}", "which has no rooms"),
        ("{name: a, provider: kubernetes, least_tier: restart}", "a job has its pod's network"),
        ("{name: a, provider: kubernetes, least_tier: sweep}", "a job has its pod's network"),
        ("{name: a, provider: kubernetes, kubernetes: {ask_capabilities: false}}", "no room can be made"),
        ("{name: a, weights: {x: 0}}", r"weights: 'x' has 0: use a whole number from 1 to 1000"),
        ("{name: a, weights: {x: 1001}}", r"weights: 'x' has 1001: use a whole number from 1 to 1000"),
        ("{name: a, weights: {x: 1.5}}", r"weights\.x: Input should be a valid integer"),
        ("{name: a, weights: {x: yes}}", r"weights\.x: Input should be a valid integer"),
        ("{name: a, weights: {'': 2}}", "weights: one caller has no name: name it"),
        ("{name: a, provider: kubernetes, gang_peers: true}", "which each job has a network of its own"),
    ],
)
def test_what_cannot_be_is_named(text: str, problem: str) -> None:
    """More pods kept than there may be; a reset that its pods cannot have."""
    with pytest.raises(InvalidInput, match=problem):
        parse_profiles(text)


@pytest.mark.parametrize("pods", ["", "isolation: plain, ", "provider: kubernetes, network: open, "])
def test_gangs_may_have_peers(pods: str) -> None:
    """Isolated local pods, plain ones, and those of a cluster whose jobs have their pod's network."""
    assert parse_profiles(f"{{name: a, {pods}gang_peers: true}}")[0].gang_peers
