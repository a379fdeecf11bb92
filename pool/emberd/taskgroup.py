"""A control group of gVisor's own kernel that bounds the processes of a pod's jobs: its RLIMIT_NPROC does not reliably,
and emberd's own count comes late. Nothing of it is on the host.

Nor does the group refuse all that go beyond: with a limit of 0, some forks were seen to succeed. So what is left is
read rather than tried.
"""

import os
from typing import Dict

from emberpool.pool.emberd import guard, kernel, tasks
from emberpool.pool.emberd.config import RoomSpec

OF_NO_GROUP = 1 << 20
"""What is left where nothing is counted."""
_FILES = {"cgroup.procs": os.O_WRONLY, "pids.current": os.O_RDONLY, "pids.max": os.O_RDONLY}


class TaskGroup:
    """The group of one pod; nothing where none is needed or to be had."""

    def __init__(self, folder: str, spec: RoomSpec) -> None:
        """It is mounted on `folder` for the moment."""
        self._files: Dict[str, int] = {}
        if spec.mode != "namespaces" or not guard.in_gvisor():
            return
        try:
            kernel.mount("none", folder, "cgroup", 0, "pids")
        except OSError:
            return
        try:
            self._make(folder + "/jobs", tasks.most(spec))
        except OSError:
            self._close()
        finally:
            kernel.unmount(folder)

    def _make(self, group: str, most: int) -> None:
        os.makedirs(group, exist_ok=True)
        with open(group + "/pids.max", "w") as file:
            file.write(str(most))
        for name, how in _FILES.items():
            self._files[name] = os.open(f"{group}/{name}", how | os.O_CLOEXEC)

    def join(self) -> None:
        """Be bound by it, as all below this process will be; no job may find its files open."""
        if self._files:
            os.write(self._files["cgroup.procs"], str(os.getpid()).encode())
        self._close()

    def left(self) -> int:
        """How many more processes it allows; none or fewer: none."""
        if not self._files:
            return OF_NO_GROUP
        return self._number("pids.max") - self._number("pids.current")

    def _number(self, name: str) -> int:
        text = os.pread(self._files[name], 64, 0).strip()
        return OF_NO_GROUP if text == b"max" else int(text)

    def _close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
