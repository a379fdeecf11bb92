"""The machine's processes as /proc shows them: who runs under a uid, and who descends from whom."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")


def _statuses() -> Iterator[tuple[int, dict[str, str]]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                lines = (entry / "status").read_text().splitlines()
                yield int(entry.name), dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def processes_by_uid() -> dict[int, set[int]]:
    """Real uid to the pids that run under it; zombies are left out.

    The status is read, not the folder's owner: that is root for a process that is not dumpable.
    """
    found: dict[int, set[int]] = {}
    for pid, fields in _statuses():
        if not fields.get("State", "Z").startswith(("Z", "X")):
            found.setdefault(int(fields["Uid"].split()[0]), set()).add(pid)
    return found


def children_of(pid: int) -> set[int]:
    """Direct children of a process."""
    try:
        lists = [path.read_text() for path in PROC.glob(f"{pid}/task/*/children")]
    except OSError:
        lists = []
    if lists:
        return {int(word) for text in lists for word in text.split()}
    # A kernel without CONFIG_PROC_CHILDREN, or the process is gone.
    return {child for child, fields in _statuses() if fields.get("PPid") == str(pid)}


def kill_tree(pid: int) -> None:
    """SIGKILL a process and all that descend from it.

    Each is stopped before its children are read, so that none is born unseen. A descendant whose parents have ended
    is not found: that is what PID namespaces are for.
    """
    seen: set[int] = set()
    waiting = {pid}
    while waiting:
        for one in waiting:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        seen |= waiting
        waiting = {child for one in waiting for child in children_of(one)} - seen
    for one in seen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def end_uid(uid: int, limit_s: float) -> None:
    """SIGKILL all that runs under a uid that belongs to one pod alone, and wait until nothing does. Blocks.

    Raises:
        TimeoutError: something does not end.
    """
    deadline = time.monotonic() + limit_s
    while pids := processes_by_uid().get(uid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(pids)} of uid {uid} do not end")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
