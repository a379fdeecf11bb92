"""The cluster's own processes: each recorded by pid and start time, so that no other is ever ended in its place."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from testcluster.remains import MARK


class NotUp(Exception):
    """A part of the cluster did not come up in time, or ended; the text has the end of its log."""


def started_at(pid: int) -> str:
    """When a process began, in clock ticks since boot; "" if there is none or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def noted(pids: Iterable[int]) -> dict[int, str]:
    """Those of them that run, each with its start: for `still`."""
    return {pid: began for pid in pids if (began := started_at(pid))}


def still(noted: Mapping[int, str]) -> Iterator[int]:
    """Those that run yet. Each is looked at when its turn comes: since it was noted, its pid may be another's."""
    return (pid for pid, began in noted.items() if started_at(pid) == began)


def wait_for(what: str, ready: Callable[[], bool], limit_s: float) -> None:
    """Poll until `ready`.

    Raises:
        NotUp: it is not within the limit.
    """
    deadline = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > deadline:
            raise NotUp(f"{what} not within {limit_s:.0f} s")
        time.sleep(0.05)


class Processes:
    """What was started from one run folder, also by an earlier command."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pids, self._logs = folder, folder / "pids", folder / "logs"
        self._own: dict[str, subprocess.Popen[bytes]] = {}
        """Those that this command started."""

    def start(self, name: str, argv: list[str], env: Mapping[str, str] | None = None) -> None:
        """Start a process that outlives us."""
        self._pids.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {}), MARK: str(self._folder)},
                start_new_session=True,
                cwd="/",
            )
        self._own[name] = process
        (self._pids / name).write_text(f"{process.pid} {started_at(process.pid)}")

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def names(self) -> list[str]:
        """Every process that was started and not stopped, in the order of their starts."""
        if not self._pids.is_dir():
            return []
        return [path.name for path in sorted(self._pids.iterdir(), key=lambda path: path.stat().st_mtime_ns)]

    def pid(self, name: str) -> int:
        """Pid of a process that runs; 0 if it does not."""
        try:
            pid, began = (self._pids / name).read_text().split(" ")
        except (OSError, ValueError):
            return 0
        return int(pid) if began and started_at(int(pid)) == began else 0

    def argv(self, name: str) -> list[str]:
        """The command line of a process that runs.

        Raises:
            NotUp: it does not run.
        """
        pid = self.pid(name)
        if not pid:
            raise NotUp(f"{name} does not run")
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")

    def wait(self, name: str, ready: Callable[[], bool], limit_s: float = 30.0) -> None:
        """Wait until one of them is ready.

        Raises:
            NotUp: it ended, or is not ready in time.
        """

        def ready_or_dead() -> bool:
            if self.pid(name) == 0:
                raise NotUp(f"{name} ended:\n{self._tail(name)}")
            return ready()

        try:
            wait_for(name, ready_or_dead, limit_s)
        except NotUp as error:
            raise NotUp(f"{error}\n{self._tail(name)}") from error

    def stop(self, name: str, limit_s: float = 10.0) -> None:
        """SIGTERM, and SIGKILL if it does not go."""
        pid, own = self.pid(name), self._own.pop(name, None)
        if pid and pid != os.getpid():
            end(pid, limit_s)
        if own is not None:
            own.wait()
        (self._pids / name).unlink(missing_ok=True)

    def resume(self) -> None:
        """Let those go on that a test has stopped, and did not come to let go on."""
        for pid in filter(None, map(self.pid, self.names())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def let_go(self) -> None:
        """Leave what this program has started to whoever takes the cluster down."""
        for process in self._own.values():
            process.returncode = 0  # its finalizer would warn that it still runs
        self._own.clear()

    def _tail(self, name: str) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-15:])


def end(pid: int, limit_s: float) -> None:
    """End one process and return when it is gone."""
    began = started_at(pid)
    for number, patience_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if started_at(pid) != began:
                return
            time.sleep(0.02)
