"""Host uids for pods, when the supervisor runs as root: one of its own for each live pod.

Uid 0 in a namespace that maps it to host uid 0 is still root to files such as /proc/sys/kernel/core_pattern.
Under a uid that owns nothing on the host, it is nobody.
"""

import contextlib
import grp
import math
import os
import pwd
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.providers.local.process_table import processes_by_uid

FIRST_UID = 700_000
"""Above every range that distributions hand out to people, services and the first subordinate users."""
COUNT = 20_000
LOOK_S = 5.0
"""Seconds for which a look at the machine's uids holds; a uid given back is not handed out again for far longer."""
_FEW = 4096
"""Taken from the top of a container's range, if `FIRST_UID` is not in it."""


def uid_range(uid_map: Path = Path("/proc/self/uid_map")) -> range:
    """Where pods' uids come from; empty unless we are root and may become others.

    A container with a user namespace of its own has a limited range, and a rootless one may have a single id.
    """
    if os.geteuid() != 0:
        return range(0)
    sizes = [
        (int(first), int(count)) for first, _, count in (line.split() for line in uid_map.read_text().splitlines())
    ]
    if any(first <= FIRST_UID and FIRST_UID + COUNT <= first + count for first, count in sizes):
        return range(FIRST_UID, FIRST_UID + COUNT)
    first, count = max(sizes, key=lambda size: size[1])
    return range(first + count - _FEW, first + count) if count > 2 * _FEW else range(0)


def _subordinate_ranges(path: Path) -> Iterator[range]:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            parts = line.split(":")
            if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
                yield range(int(parts[1]), int(parts[1]) + int(parts[2]))


class UidPool:
    """Hands out uids that no account, no subordinate range, no process and no other supervisor uses.

    A uid is held by an abstract socket of its name: the kernel frees it with the process that holds it.
    """

    def __init__(self, uids: range) -> None:
        self._first, self._count, self._next = uids.start, len(uids), 0
        self._held: dict[int, socket.socket] = {}
        self._used: set[int] = set()
        self._ranges: list[range] = []
        self._looked_at = -math.inf

    def take(self) -> int:
        """A free uid, held until `free`.

        Raises:
            PoolUnavailable: all are in use.
        """
        used, ranges = self._look()
        for step in range(self._count):
            uid = self._first + (self._next + step) % self._count
            if uid not in used and not any(uid in taken for taken in ranges) and self._hold(uid):
                # Go round, so that a uid rests as long as possible before another pod gets it.
                self._next = (uid - self._first + 1) % self._count
                return uid
        raise PoolUnavailable(f"all {self._count} host uids from {self._first} are in use")

    def free(self, uid: int) -> None:
        """Give a uid back; nothing of its pod may be left. Silent if it is not held."""
        held = self._held.pop(uid, None)
        if held is not None:
            held.close()

    def close(self) -> None:
        """Give back all."""
        for uid in list(self._held):
            self.free(uid)

    def _look(self) -> tuple[set[int], list[range]]:
        """What is in use on this machine, seen at most `LOOK_S` ago: a new pod must not cost a walk through /proc."""
        if time.monotonic() - self._looked_at > LOOK_S:
            self._used = {entry.pw_uid for entry in pwd.getpwall()} | {entry.gr_gid for entry in grp.getgrall()}
            self._used |= set(processes_by_uid())
            self._ranges = [*_subordinate_ranges(Path("/etc/subuid")), *_subordinate_ranges(Path("/etc/subgid"))]
            self._looked_at = time.monotonic()
        return self._used, self._ranges

    def _hold(self, uid: int) -> bool:
        if uid in self._held:
            return False
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            lock.bind(f"\0emberpool-uid-{uid}")
        except OSError:
            lock.close()
            return False
        self._held[uid] = lock
        return True
