"""A cluster that was started for one run of tests goes with that run, also where the run is killed.

Whoever starts it is noted in its folder. A process of its own, the guard, waits for the end of that one, whatever ends
it, and takes down what is then still his.
"""

import fcntl
import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testcluster.processes import Processes, started_at

GUARD = "guard"
"""Its name among the cluster's processes."""
_NOTE = "owner"


@dataclass(frozen=True)
class Owner:
    """A process that a cluster was started for."""

    pid: int
    began: str
    """When it began, as `started_at` has it: another process may have its pid by now."""

    @classmethod
    def me(cls) -> "Owner":
        """This process."""
        return cls(os.getpid(), started_at(os.getpid()))

    @classmethod
    def of(cls, folder: Path) -> "Owner | None":
        """The one that is noted in a run folder; None if its cluster is nobody's, and stays up."""
        try:
            pid, began = (folder / _NOTE).read_text().split(" ")
        except (OSError, ValueError):
            return None
        return cls(int(pid), began)

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return started_at(self.pid) != self.began

    def note(self, folder: Path) -> None:
        """For whoever looks at that folder; whole or not at all."""
        unfinished = folder / f"{_NOTE}.partial"
        unfinished.write_text(f"{self.pid} {self.began}")
        unfinished.rename(folder / _NOTE)

    def wait(self) -> None:
        """Return when it has ended."""
        try:
            watched = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not self.gone:
                select.select([watched], [], [])
        finally:
            os.close(watched)


def start_guard(processes: Processes, owner: Owner) -> None:
    """Start the process that waits for the owner's end."""
    argv = [sys.executable, "-P", "-m", "testcluster", GUARD, str(owner.pid), owner.began]
    processes.start(GUARD, argv, {"PYTHONPATH": str(Path(__file__).parents[1])})


@contextmanager
def alone(where: Path) -> Generator[None]:
    """Nobody else starts the cluster or takes it down meanwhile; `where` is a folder that outlives every cluster.

    Whoever holds this lets go of it by ending, however he ends.
    """
    if not where.is_dir():  # nothing was ever built, so that there is nobody else
        yield
        return
    folder = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
