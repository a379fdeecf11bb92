"""The reset of a pod that has no namespaces for rooms: all of the jobs' user is ended and removed, then compared.

Its checks are those of a room and one more: the manifest of the pod's own files.
"""

import sys
from typing import Dict, Iterable, List, Optional, Set

from emberpool.pool.emberd import ipc, sockets, tree
from emberpool.pool.emberd.manifest import Manifest, ManifestError, remove_owned
from emberpool.pool.emberd.room import Room, RoomError, ZygoteLink

_TOLD = 8


class Sweep:
    """Of one pod, whose processes, files, IPC and network are its own."""

    def __init__(self, uid: int, spared: Iterable[str], link: ZygoteLink) -> None:
        """`uid`: the jobs' user. `spared`: folders of emberd's own."""
        self._uid, self._spared, self._link = uid, list(spared), link
        self._manifest: Optional[Manifest] = None
        self._shared: Set[str] = set()
        self._listeners: Set[sockets.Waiting] = set()

    def remove_all(self) -> None:
        """At a start that follows another: remove what is the jobs' user's in volumes, shared memory and queues, where
        nothing else of the pod is. Raises ManifestError: something stays."""
        try:
            self._link.ask({"do": "sweep"})
        except RoomError as error:
            raise ManifestError(f"what the life before this one has left cannot be removed: {error}") from error
        remove_owned(self._uid, self._spared)

    def take_baseline(self) -> None:
        """Note how the pod is before its first job. Raises ManifestError."""
        self._manifest = Manifest(self._uid, self._spared)
        self._shared = ipc.there()
        self._listeners = set(sockets.waiting())

    def undo(self) -> None:
        """End and remove all that the jobs' user has left. What stays is for the checks to find."""
        try:
            self._link.ask({"do": "sweep"})
        except RoomError as error:
            print(f"emberd: sweep: {error}", file=sys.stderr, flush=True)
        if self._manifest is not None and not tree.of_user(self._uid):  # what lives on could change what is removed
            self._manifest.undo()

    def checks(self, room: Room) -> Dict[str, bool]:
        """Every check by name; True: nothing of the kind was left."""
        left: Dict[str, List[str]] = {
            "processes": [str(pid) for pid in tree.of_user(self._uid) if pid != room.pid],
            "listeners": [" ".join(one) for one in set(sockets.waiting()) - self._listeners],
            "shared_memory": sorted(ipc.there() - self._shared),
            "manifest": ["no baseline"] if self._manifest is None else self._manifest.differences(),
        }
        for name, found in left.items():
            if found:
                print(f"emberd: {name}: {ascii(found[:_TOLD])}", file=sys.stderr, flush=True)
        return {name: not found for name, found in left.items()}
