"""The checks that follow a reset. Each looks for itself at what is there now; none trusts that the reset worked."""

import os
from typing import Dict, List, Optional, Set

from emberpool.pool.emberd import guard, sockets, tree
from emberpool.pool.emberd.gpu import Gpus
from emberpool.pool.emberd.room import Room, Scratch
from emberpool.pool.emberd.roomroot import mounted
from emberpool.pool.emberd.sweeping import Sweep


class Attestor:
    """Compares the pod after a reset with how it was before the first job."""

    def __init__(self, mode: str, zygote_pid: int, scratch: Scratch, gpus: Gpus, sweep: Optional[Sweep] = None) -> None:
        self._mode, self._zygote, self._scratch, self._gpus = mode, zygote_pid, scratch, gpus
        self.sweep = sweep
        self._proves_start = guard.in_gvisor()
        """After a bomb of processes its kernel may refuse the next command its own."""
        self._before: Set[sockets.Waiting] = set()
        self._mounts: List[str] = []

    def take_baseline(self) -> None:
        """Note what is not a job's: emberd's own sockets and mounts and those of other containers of the pod.

        Raises:
            ManifestError: jobs could change more of this pod's files than can be compared.
        """
        self._mounts = mounted()
        if self._mode == "namespaces":
            self._before = set(sockets.waiting())
        if self.sweep is not None:
            self.sweep.take_baseline()

    def checks(self, old_ended: bool, new: Room) -> Dict[str, bool]:
        """Every check by name; True: nothing of the kind was left."""
        inside = new.inspect()
        found = {
            "processes": old_ended and not self._strangers(new),
            "scratch": not inside["files"] and not self._scratch.leftovers(new),
        }
        if self._gpus.asked:
            found["vram"] = self._gpus.released()
        if self._mode == "namespaces":
            own_ipc = os.stat("/proc/self/ns/ipc").st_ino
            found["listeners"] = not set(sockets.waiting()) - self._before
            found["shared_memory"] = not inside["shared_memory"] and inside["ipc"] == new.ipc != own_ipc
            found["mounts"] = inside["mounts"] == new.mounts and mounted() == self._mounts
        elif self.sweep is not None:
            swept = self.sweep.checks(new)
            swept["processes"] = swept["processes"] and found["processes"]
            found.update(swept, mounts=mounted() == self._mounts)
        if self._proves_start:
            found["new_process"] = new.proves_start()  # last: to the other checks it would be a stranger
        return found

    def _strangers(self, new: Room) -> List[int]:
        """Processes in the pod that are neither emberd's nor in a room that nobody has used."""
        processes = tree.table()
        in_new = tree.descendants([new.pid], processes)
        me = os.getpid()
        if me != 1:
            return in_new
        known = {me, self._zygote, *tree.descendants([self._zygote], processes)}
        return in_new + [pid for pid, process in processes.items() if pid not in known and process.state not in "ZX"]
