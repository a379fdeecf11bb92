"""Refuses to serve where a job that breaks out of its room would be root on the host."""

import os
from typing import List, Optional, Tuple

from emberpool.pool.emberd import kernel

_ALL = 4294967295


def reason_to_refuse() -> Optional[str]:
    """Why this process must not run jobs, or None."""
    if in_gvisor():
        return None
    with open("/proc/self/uid_map") as lines:
        ranges = [_range(line) for line in lines]
    return judge(ranges, kernel.effective_capabilities(), os.geteuid())


def in_gvisor() -> bool:
    """Whether the kernel below is gVisor's own: its root is not the host's, whatever the map of ids says."""
    return os.path.exists("/proc/sentry-meminfo")


def forbid_user_namespaces() -> None:
    """Let no process of this pod make a user namespace, in which it would hold every capability again.

    Where /proc/sys is read-only, that is the container runtime's business.
    """
    with open("/proc/self/uid_map") as lines:
        if [_range(line) for line in lines] == [(0, 0, _ALL)]:
            return  # it would hold for the whole host
    try:
        with open("/proc/sys/user/max_user_namespaces", "w") as file:
            file.write("0")
    except OSError:
        return


def judge(ranges: List[Tuple[int, int, int]], capabilities: int, uid: int) -> Optional[str]:
    """`ranges`: (inside, outside, length) of /proc/self/uid_map.

    The initial user namespace shows the identity over all ids. There an unprivileged user is fine (plain mode);
    in any other namespace an id that is the host's uid 0 is what a breakout would become.
    """
    if ranges == [(0, 0, _ALL)]:
        if capabilities & (1 << kernel.CAP_SYS_ADMIN):
            return "CAP_SYS_ADMIN in the initial user namespace: use a pod user namespace, or an unprivileged user"
        return "host uid 0: run as an unprivileged user" if uid == 0 else None
    if any(outside == 0 for _, outside, _ in ranges):
        return "the user namespace maps host uid 0: start it from an unprivileged user"
    return None


def _range(line: str) -> Tuple[int, int, int]:
    inside, outside, length = (int(part) for part in line.split())
    return inside, outside, length
