"""Process trees, read from /proc: who descends from whom, what memory they hold, and how to end them all."""

import os
import signal
import time
from typing import Dict, Iterable, List, NamedTuple, Set

PAGE = os.sysconf("SC_PAGE_SIZE")
_THREADS = 17
"""Field of /proc/PID/stat, counted from the state."""


class Process(NamedTuple):
    """One line of the table."""

    parent: int
    state: str
    threads: int = 1


def table() -> Dict[int, Process]:
    """Every process that this one can see."""
    found: Dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                text = file.read()
        except OSError:
            continue  # it ended meanwhile
        # The name in parentheses may hold anything, spaces and parentheses too.
        fields = text[text.rindex(b")") + 2 :].split()
        found[int(name)] = Process(int(fields[1]), fields[0].decode("ascii"), int(fields[_THREADS]))
    return found


def descendants(roots: Iterable[int], processes: Dict[int, Process]) -> List[int]:
    """Everything below `roots`, without them, dead ones left out."""
    children: Dict[int, List[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    below: List[int] = []
    queue = list(roots)
    while queue:
        for pid in children.get(queue.pop(), ()):
            queue.append(pid)
            if _lives(pid, processes[pid]):
                below.append(pid)
    return below


def _lives(pid: int, process: Process) -> bool:
    """Whether any of its threads does: one whose first thread has ended looks like a zombie, and runs on."""
    if process.state not in "ZX":
        return True
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False  # it was reaped meanwhile


def end_below(roots: Iterable[int], wait_s: float = 5.0) -> bool:
    """Kill everything below `roots`, which must be subreapers, and wait until nothing is left. False if something is.

    All are stopped before the first is killed: a tree that forks faster than it is killed cannot outrun that.
    """
    roots = list(roots)
    deadline = time.monotonic() + wait_s
    stopped: Set[int] = set()
    while True:
        below = set(descendants(roots, table()))
        if not below:
            _signal((pid for pid in roots if pid != os.getpid()), signal.SIGCONT)  # a job may have stopped its keeper
            return True
        if time.monotonic() > deadline:
            return False
        fresh = below - stopped
        _signal(fresh or below, signal.SIGSTOP if fresh else signal.SIGKILL)
        if not fresh:
            time.sleep(0.0005)
        stopped |= fresh


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue  # gone, or never ours


def of_user(uid: int) -> List[int]:
    """Processes that are this user's by any of its ids, dead ones left out. /proc's owners would not do: a process can
    have its folder there belong to root."""
    found: List[int] = []
    for pid, process in table().items():
        if _lives(pid, process) and uid in _ids(pid):
            found.append(pid)
    return found


def _ids(pid: int) -> Set[int]:
    """A process's real, effective, saved and file system user."""
    try:
        with open(f"/proc/{pid}/status", "rb") as lines:
            for line in lines:
                if line.startswith(b"Uid:"):
                    return {int(number) for number in line.split()[1:]}
    except OSError:
        pass  # it ended meanwhile
    return set()


def tasks_of_user() -> int:
    """Processes and threads of this process's user that it can see: what a limit on them counts."""
    count, me = 0, os.getuid()
    for pid in table():
        try:
            if os.stat(f"/proc/{pid}").st_uid == me or pid == os.getpid():
                count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return count


def resident(pid: int) -> int:
    """Bytes in memory, files included: an upper bound that is cheap to read."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def private(pid: int) -> int:
    """Bytes in memory that no file backs: what a limit is about."""
    total, told = 0, False
    try:
        with open(f"/proc/{pid}/status", "rb") as lines:
            for line in lines:
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    total, told = total + int(line.split()[1]) * 1024, True
    except OSError:
        return 0
    return total if told else resident(pid)  # gVisor does not tell them apart
