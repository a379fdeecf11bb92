"""A control group of gVisor's own kernel that bounds the processes of a pod's jobs: its RLIMIT_NPROC does not reliably,
and emberd's own count comes late. Nothing of it is on the host.
"""

import os

from emberpool.pool.emberd import guard, kernel, tasks
from emberpool.pool.emberd.config import RoomSpec


def opened(folder: str, spec: RoomSpec) -> int:
    """A file to write PIDs to, those of rooms' first processes, before they start any; -1 where no such group is needed
    or to be had. It is mounted on `folder` for the moment."""
    if spec.mode != "namespaces" or not guard.in_gvisor():
        return -1
    try:
        kernel.mount("none", folder, "cgroup", 0, "pids")
    except OSError:
        return -1
    try:
        group = folder + "/jobs"
        os.makedirs(group, exist_ok=True)
        with open(group + "/pids.max", "w") as file:
            file.write(str(tasks.most(spec)))
        return os.open(group + "/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        kernel.unmount(folder)


def join(group: int) -> None:
    """Be bound by it, as all below this process will be; no job may find the file open."""
    if group >= 0:
        os.write(group, str(os.getpid()).encode())
        os.close(group)
