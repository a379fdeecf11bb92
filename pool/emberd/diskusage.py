"""How much disk the jobs of a room hold: files in its upper layer, and deleted ones that they still have open."""

import errno
import os
import stat
import time
from typing import Iterable, List, Optional, Set, Tuple

LEAST = 4096
"""What every file, folder or link counts at least: many empty ones use a disk up too."""
LOOK_ANYWAY_S = 2.0
"""Longest time that a sum is believed because the disk has not become fuller: another's deletions may hide growth."""
PACE = 4.0
"""A sum that took long is not made again before this many times as long."""
SLACK = 1024 * 1024
"""Growth, beyond the limit, that is no reason to end anything: a job that tidies up writes a little."""


class DiskUsage:
    """Of one room after another. Not safe for several threads at once."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._start_with([])

    def _start_with(self, folders: List[str]) -> None:
        self._folders = folders
        self._sum = self._before = self._full_at = 0
        """`_before`: what the sum was at the last look but one."""
        self._next, self._until = 0.0, 0.0
        self._ended_at: Optional[int] = None
        """Least sum since jobs were ended; None: none were, or later ones have tidied up."""

    def exceeded(self, folders: List[str], pids: Iterable[int], taken: int = 0) -> bool:
        """Whether jobs have just grown beyond the limit, of which `taken` bytes are used by others. `pids`: theirs.
        Cheap unless the disk became fuller."""
        limit = max(0, self._limit - taken)
        if folders != self._folders:
            self._start_with(folders)
        now, full = time.monotonic(), _used_of(folders[0])
        suspicious = self._sum + max(0, full - self._full_at) > limit
        if now < self._next or (now < self._until and not suspicious):
            return False
        self._full_at = full
        self._before, self._sum = self._sum, held(folders, pids, limit)
        total = self._sum
        took = time.monotonic() - now
        self._next, self._until = now + took * (1 + PACE), now + max(LOOK_ANYWAY_S, took * 20)
        if total <= limit:
            self._ended_at = None
            return False
        if self._ended_at is not None and total <= self._ended_at + SLACK:
            # By two looks: one may miss a folder that is just being renamed.
            self._ended_at = min(self._ended_at, max(total, self._before))
            return False
        self._ended_at = total
        return True


def _used_of(folder: str) -> int:
    about = os.statvfs(folder)
    return (about.f_blocks - about.f_bfree) * about.f_frsize


def held(folders: Iterable[str], pids: Iterable[int], limit: int) -> int:
    """Bytes on disk. More than `limit` also if something is nested out of sight."""
    seen: Set[Tuple[int, int]] = set()
    total = sum(_open_but_deleted(pid, seen) for pid in pids)
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    total += _size(entry, waiting, seen)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return limit + SLACK * 2 + total  # nested beyond any path, to be out of sight: as good as full
            continue  # it went meanwhile, or in plain mode is closed to us
    return total


def _size(entry: "os.DirEntry[str]", waiting: List[str], seen: Set[Tuple[int, int]]) -> int:
    try:
        about = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if stat.S_ISDIR(about.st_mode):
        waiting.append(entry.path)
    elif about.st_nlink > 1:
        if (about.st_dev, about.st_ino) in seen:
            return 0
        seen.add((about.st_dev, about.st_ino))
    return max(LEAST, about.st_blocks * 512)


def _open_but_deleted(pid: int, seen: Set[Tuple[int, int]]) -> int:
    """Deleted files keep their blocks while a descriptor or a mapping holds them."""
    total = 0
    for kind in ("fd", "map_files"):
        folder = f"/proc/{pid}/{kind}"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                about = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 0 and (about.st_dev, about.st_ino) not in seen:
                seen.add((about.st_dev, about.st_ino))
                total += about.st_blocks * 512
    return total
