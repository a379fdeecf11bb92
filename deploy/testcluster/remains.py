"""Which processes are the cluster's, whoever started them and whether or not he came to note it."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

MARK = "EMBERPOOL_TESTCLUSTER"
"""Variable with the run folder: programs of the cluster have it from us, and hand it on to what they start."""


def processes_of(folder: Path) -> list[int]:
    """Those that were started for this run folder, by any of its programs. What runs in containers has no mark."""
    mark = f"{MARK}={folder}".encode()
    return [pid for pid in _pids() if pid != os.getpid() and mark in _read(pid, "environ").split(b"\0")]


def processes_with(argument: str, program: str) -> list[int]:
    """Processes of that program with that text in an argument."""
    found: list[int] = []
    for pid in _pids():
        words = _read(pid, "cmdline").decode(errors="replace").split("\0")
        if os.path.basename(words[0]).startswith(program) and any(argument in word for word in words):
            found.append(pid)
    return found


def descendants(ancestors: Iterable[int]) -> list[int]:
    """Children of these processes, their children, and so on."""
    parents = {pid: _parent(pid) for pid in _pids()}
    found, news = list[int](), set(ancestors)
    while news:
        news = {pid for pid, parent in parents.items() if parent in news}
        found += news
    return found


def kill(pids: Iterable[int]) -> None:
    """SIGKILL; those that are gone are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_in(groups: Iterable[Path], limit_s: float = 5.0) -> None:
    """Kill all that runs in these control groups and below, until nothing is left or the time is over."""
    folders, deadline = list(groups), time.monotonic() + limit_s
    while (left := [pid for folder in folders for pid in _in_group(folder)]) and time.monotonic() < deadline:
        kill(left)
        time.sleep(0.02)


def _in_group(group: Path) -> list[int]:
    found: list[int] = []
    for path in group.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in path.read_text().split() if word != "0"]
    return found


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
