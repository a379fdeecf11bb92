"""Who jobs are where rooms have no user namespace of their own: a user that nobody else in the pod is."""

import os
import signal

from emberpool.pool.emberd import ipc


def become(uid: int) -> None:
    """Be that user and group, and nobody else, for good. Raises OSError: this process may not."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def end_all() -> None:
    """Kill every process of this process's user that it can see, but itself.

    One system call, during which the kernel lets nobody fork: a tree that forks as fast as it can does not outrun it.
    """
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return


def remove_ipc() -> None:
    """Remove every System V object that is this process's user's."""
    for kind, number in ipc.objects():
        ipc.remove(kind, number)
