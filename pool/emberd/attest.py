"""The checks that follow a reset. Each looks for itself at what is there now; none trusts that the reset worked."""

import os
from typing import Dict, List, Set

from emberpool.pool.emberd import sockets, tree
from emberpool.pool.emberd.gpu import Gpus
from emberpool.pool.emberd.room import Room, Scratch


class Attestor:
    """Compares the pod after a reset with how it was before the first job."""

    def __init__(self, mode: str, zygote_pid: int, scratch: Scratch, gpus: Gpus) -> None:
        self._mode, self._zygote, self._scratch, self._gpus = mode, zygote_pid, scratch, gpus
        self._before: Set[sockets.Waiting] = set()

    def take_baseline(self) -> None:
        """Note the sockets that are not a job's: emberd's own and those of other containers of the pod."""
        if self._mode == "namespaces":
            self._before = set(sockets.waiting())

    def checks(self, old_ended: bool, new: Room) -> Dict[str, bool]:
        """Every check by name; True: nothing of the kind was left."""
        inside = new.inspect()
        found = {
            "processes": old_ended and not self._strangers(new),
            "scratch": not inside["files"] and not self._scratch.leftovers(new),
        }
        if self._gpus.uuids:
            found["vram"] = self._gpus.released()
        if self._mode == "namespaces":
            own_ipc = os.stat("/proc/self/ns/ipc").st_ino
            found["listeners"] = not set(sockets.waiting()) - self._before
            found["shared_memory"] = not inside["shared_memory"] and inside["ipc"] == new.ipc != own_ipc
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
