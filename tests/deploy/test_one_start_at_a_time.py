"""The test cluster is shared: who comes while another starts it waits and uses it, and who started it ends it."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from testcluster.__main__ import start
from testcluster.cluster import Cluster
from testcluster.folders import Built
from testcluster.guard import Owner
from testcluster.processes import started_at, wait_for


class Sleeper(Cluster):
    """A cluster whose one part sleeps, and whose start ends when it is told to; nothing of the machine is touched."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Built(folder / "cache" / "hash"), folder / "run")
        self.may_end = threading.Event()
        self.taken_down = 0

    def _up(self) -> None:
        self.processes.start("kubelet", ["sleep", "60"])
        assert self.may_end.wait(30)

    def _down(self) -> None:
        self.taken_down += 1
        for name in self.processes.names():
            self.processes.stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[tuple[Sleeper, Sleeper]]:
    """The same cluster, as two commands have it."""
    (tmp_path / "cache").mkdir()
    one, other = Sleeper(tmp_path), Sleeper(tmp_path)
    other.may_end.set()
    yield one, other
    one.may_end.set()
    for sleeper in (one, other):
        sleeper.processes.stop("kubelet")  # each reaps its own


def test_a_start_on_its_way_is_waited_for(sleepers: tuple[Sleeper, Sleeper]) -> None:
    """It is not up before all of its start is done; who starts it meanwhile takes nothing down, and does not own it."""
    by_hand, of_tests = sleepers
    with ThreadPoolExecutor(2) as beside:
        first = beside.submit(by_hand.up)
        wait_for("a kubelet", lambda: by_hand.processes.pid("kubelet") > 0, 30)
        kubelet = by_hand.processes.pid("kubelet")
        second = beside.submit(of_tests.up, Owner.me())
        assert not of_tests.is_up
        by_hand.may_end.set()
        assert first.result() and not second.result()
    assert of_tests.is_up and of_tests.taken_down == 0
    assert of_tests.processes.pid("kubelet") == kubelet
    assert Owner.of(of_tests.folder) is None
    of_tests.down(of=Owner.me())
    assert of_tests.is_up, "it is not theirs to end"


def test_what_a_killed_start_left_is_taken_down(sleepers: tuple[Sleeper, Sleeper]) -> None:
    """Parts that run do not make a cluster that is up."""
    killed, later = sleepers
    later.processes.start("kubelet", ["sleep", "60"])
    assert not killed.is_up
    assert later.up() and later.taken_down == 1
    assert later.is_up


def test_a_start_by_hand_names_the_run_that_the_cluster_goes_with(
    sleepers: tuple[Sleeper, Sleeper], capsys: pytest.CaptureFixture[str]
) -> None:
    """Once that run has ended, the next start is one to stay."""
    by_hand, of_tests = sleepers
    by_hand.may_end.set()
    with subprocess.Popen(["sleep", "60"]) as run:
        try:
            of_tests.up()
            Owner(run.pid, started_at(run.pid)).note(of_tests.folder)
            start(by_hand)
            assert f"process {run.pid}, and goes down with it" in capsys.readouterr().out
            assert by_hand.taken_down == 0
        finally:
            run.kill()
    start(by_hand)
    assert "goes down with" not in capsys.readouterr().out
    assert by_hand.taken_down == 1 and by_hand.is_up
