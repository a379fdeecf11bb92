"""How many processes and threads jobs may have together, counted by the kernel and, where that does not, by emberd.

gVisor does not count reliably what a limit of them (RLIMIT_NPROC) is about; see taskgroup.py.
"""

from typing import TYPE_CHECKING

from emberpool.pool.emberd import guard, tree

if TYPE_CHECKING:
    from emberpool.pool.emberd.config import RoomSpec

OWN = 64
"""Room for emberd's own threads and processes, which have the same user as jobs."""
DRIFT = 1024
"""Room for what the user of a plain pod starts elsewhere during a lease."""


def others(spec: "RoomSpec") -> int:
    """What the kernel may find of the jobs' user that is no job's: it comes on top of the limit that is set there."""
    if spec.mode == "plain":  # there the user is shared with whatever else it runs on this host
        return tree.tasks_of_user() + OWN + DRIFT
    return OWN


def most(spec: "RoomSpec") -> int:
    """Of the jobs alone, before emberd ends one for it: no fewer than the kernel allows them where it counts, so that a
    fork fails there long before. What else a shared user had at the room's start may have ended since: then it allows
    the jobs more."""
    shared = spec.mode == "plain" and not guard.in_gvisor()
    return spec.limits.pids + OWN + (2 * DRIFT if shared else 0)
