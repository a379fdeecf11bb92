"""The table of the pools stays a table on a narrow terminal, whatever the pools are called."""

from io import StringIO

import pytest
from rich.console import Console

from emberpool.activities.models import PoolView
from emberpool.pool.model.state import PodState
from emberpool.worker.cli.pools import Look
from emberpool.worker.cli.pools_table import pools_table
from emberpool.workflows.pool_manager import PoolStatus

LONG = "python-with-a-rather-long-name-of-its-own"


def look(profile: str, scale: int) -> Look:
    """A pool with numbers of that size."""
    view = PoolView(by_state={PodState.LEASED: scale, PodState.IDLE: scale}, idle_fresh=scale, waiting=scale)
    return Look("europe", profile, PoolStatus(max_pods=2 * scale, min_warm=scale, version=1), view, True)


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
