"""System V objects and POSIX queues of this IPC namespace: memory that outlives whoever made it."""

import ctypes
import os
from typing import List, Set, Tuple

Object = Tuple[str, int]
"""Kind (shm, sem, msg) and number."""
FOLDERS = ("/dev/shm", "/dev/mqueue")
"""Where POSIX shared memory, semaphores and queues are files, if it is mounted."""
_REMOVE = 0

_libc = ctypes.CDLL(None, use_errno=True)


def objects() -> List[Object]:
    """Every System V object."""
    found: List[Object] = []
    for kind in ("shm", "sem", "msg"):
        try:
            with open(f"/proc/sysvipc/{kind}") as file:
                found.extend((kind, int(line.split()[1])) for line in file.read().splitlines()[1:])
        except OSError:
            continue  # a kernel without
    return found


def remove(kind: str, number: int) -> None:
    """Remove one, if it is there and this process may: what stays is for the attestation to find."""
    if kind == "shm":
        _libc.shmctl(number, _REMOVE, None)
    elif kind == "sem":
        _libc.semctl(number, 0, _REMOVE)
    else:
        _libc.msgctl(number, _REMOVE, None)


def there() -> Set[str]:
    """All that shares memory by a name, in words."""
    found = {f"{kind} {number}" for kind, number in objects()}
    for folder in FOLDERS:
        try:
            found.update(os.path.join(folder, name) for name in os.listdir(folder))
        except OSError:
            continue
    return found
