"""The table of the pools stays a table on a narrow terminal, whatever the pools are called."""

from io import StringIO

import pytest
from rich.console import Console

from emberpool.activities.models import PoolView
from emberpool.pool.model.state import PodState
from emberpool.worker.cli.pools import Look, as_data
from emberpool.worker.cli.pools_table import pools_table
from emberpool.workflows.pool_manager import PoolStatus

LONG = "python-with-a-rather-long-name-of-its-own"


def look(profile: str, scale: int) -> Look:
    """A pool with numbers of that size."""
    view = PoolView(by_state={PodState.LEASED: scale, PodState.IDLE: scale}, idle_fresh=scale, waiting=scale)
    return Look("europe", profile, PoolStatus(max_pods=2 * scale, min_warm=scale, version=1), view, True)


def test_quarantined_pods_are_told_with_their_reasons() -> None:
    """For as long as they are there; a pool without has no such line."""
    now = PoolView(by_state={PodState.DRAINING: 4}, quarantined={"listeners": 2, "manifest, processes": 1})
    quiet = look("quiet", 1)
    out = StringIO()
    looks = [Look("europe", "py", PoolStatus(max_pods=4, min_warm=1, version=1), now, True), quiet]
    Console(file=out, width=100, force_terminal=False).print(pools_table(looks, with_deployment=False))
    told = [line for line in out.getvalue().splitlines() if "quarantined" in line]
    assert told == ["py: 3 quarantined, being deleted: 2 for listeners; 1 for manifest, processes"]
    assert as_data(looks[0])["quarantined"] == {"listeners": 2, "manifest, processes": 1}


def test_what_a_queue_leaves_a_pool_is_told() -> None:
    """Where it is less than the budget: otherwise nobody would know why the pool is small."""
    out = StringIO()
    shares = {"less": 2, "enough": 4, "none": None}
    looks = [
        Look("europe", name, PoolStatus(max_pods=4, min_warm=1, version=1, queue_share=share), PoolView(), True)
        for name, share in shares.items()
    ]
    Console(file=out, width=100, force_terminal=False).print(pools_table(looks, with_deployment=False))
    assert [line for line in out.getvalue().splitlines() if "queue" in line] == [
        "less: its queue leaves it 2 of 4 pods"
    ]
    assert [as_data(one)["queue_share"] for one in looks] == [2, 4, None]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("with_deployment", [False, True])
def test_a_long_name_takes_one_line_and_numbers_stay_in_line(width: int, with_deployment: bool) -> None:
    """A name is never broken: one that does not fit stands above its numbers, which end where all others end."""
    out = StringIO()
    looks = [look(LONG, 1500), look("small", 1)]
    console = Console(file=out, width=width, force_terminal=False)
    console.print(pools_table(looks, with_deployment=with_deployment, title="12:00:00"))
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    assert sum(LONG in line for line in lines) == 1
    numbers = [line for line in lines if line.endswith(("warm", "/1500", "/1"))]
    assert len(numbers) == 3 and len({len(line) for line in numbers}) == 1, lines
