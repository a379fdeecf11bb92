"""Keeps the room that jobs run in, and a next one ready, so that a reset does not wait for a room to be made."""

import os
import queue
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from emberpool.pool.emberd.attest import Attestor
from emberpool.pool.emberd.config import Shape
from emberpool.pool.emberd.room import Room, RoomError, Scratch, ZygoteLink

BEHIND_S = 0.01
"""How long work behind waits before it competes with the call that asked for it."""


class Keeper:
    """`current` is the room of the lease, None between a fence and the end of its recycle."""

    def __init__(self, link: ZygoteLink, scratch: Scratch, attestor: Attestor, mode: str, shape: Shape) -> None:
        self._link, self._scratch, self._attestor, self._mode = link, scratch, attestor, mode
        self.shape = shape
        """Of the rooms to come."""
        self.no_rooms = ""
        """Why this pod has no namespaces for rooms, if it was told to use them where it can."""
        self.current: Optional[Room] = None
        self._used: Optional[Room] = None
        """Ended, its folder not yet set aside."""
        self._ended = True
        self._unfiltered = ""
        self._spare: Optional[Room] = None
        self._lock = threading.Lock()
        self._behind: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work_behind, name="behind", daemon=True).start()

    @property
    def trash(self) -> str:
        """A folder of emberd's own beside those of rooms."""
        return self._scratch.trash

    @property
    def tier(self) -> str:
        """How this pod is reset."""
        return "room" if self._mode == "namespaces" else "sweep"

    @property
    def about(self) -> Dict[str, Any]:
        """What `GET /v1/state` tells of the rooms."""
        return {"unfiltered": self._unfiltered, "tier": self.tier, "no_rooms": self.no_rooms}

    def written_folders(self) -> List[str]:
        """Where the jobs of the current room write; empty if there is none."""
        room = self.current
        if room is None:
            return []
        if self._mode == "plain":
            return [room.work, room.env["HOME"], room.env["TMPDIR"]]
        return [os.path.join(room.folder, "upper")]

    def open_first(self) -> None:
        """Make the first room. Raises RoomError."""
        self._scratch.wipe()
        self.current = self._new()

    def prepare_spare(self) -> None:
        """Make the next command's shim and the next room behind; in plain mode no room, since all share one place."""
        self._behind.put(self._make_shim)
        if self._mode == "namespaces":
            self._behind.put(self._make_spare)

    def end_current(self) -> None:
        """Kill what runs and wait until nothing of it is left. Idempotent. Raises RoomError."""
        with self._lock:
            if self.current is None:
                return
            room, self.current = self.current, None
            self._used = room
            self._ended = room.end()

    def replace(self) -> Dict[str, Any]:
        """After `end_current`: set the used room aside, take the next one, attest. Answers tier, checks, duration_ms.

        The room becomes current only if every check holds.
        """
        began = time.monotonic()
        with self._lock:
            aside = self._set_aside()
            if self._attestor.sweep is not None:
                self._attestor.sweep.undo()
            room, self._spare = self._spare or self._new(), None
            checks = self._attestor.checks(self._ended, room)
            if all(checks.values()):
                self.current = room
            else:
                room.end()
                self._used = room
        if aside is not None:
            self._behind.put(lambda: self._scratch.delete(aside))
        self.prepare_spare()
        return {"tier": self.tier, "checks": checks, "duration_ms": round((time.monotonic() - began) * 1000, 3)}

    def reshape(self, shape: Shape) -> None:
        """Put rooms of another shape in the place of those that nobody has used. On failure all stays as it was.

        Raises:
            RoomError: no such room can be made.
        """
        if self._mode != "namespaces":
            self.shape = shape  # one place for all, and nothing in it depends on the shape
            return
        with self._lock:
            folder = self._scratch.fresh()
            try:
                room = Room(self._link, folder, shape)
            except RoomError:
                self._drop(folder)
                raise
            unused = [one for one in (self.current, self._spare) if one is not None]
            self.shape, self.current, self._spare = shape, room, None
            for one in unused:
                one.end()
                self._drop(one.folder)
        self.prepare_spare()

    def _drop(self, folder: str) -> None:
        """Out of the way at once, deleted behind: to a later attestation it would be somebody's leftover."""
        self._behind.put(partial(self._scratch.delete, self._scratch.set_aside(folder)))

    def _set_aside(self) -> Optional[str]:
        if self._used is None:
            return None
        aside = self._scratch.set_aside(self._used.folder)
        self._used = None
        return aside

    def _new(self) -> Room:
        room = Room(self._link, self._scratch.fresh(), self.shape)
        self._unfiltered = room.unfiltered
        return room

    def _make_spare(self) -> None:
        with self._lock:
            if self._spare is None:
                self._spare = self._new()

    def _make_shim(self) -> None:
        room = self.current
        if room is not None:
            room.shims.make_ready()

    def _work_behind(self) -> None:
        while True:
            job = self._behind.get()
            time.sleep(BEHIND_S)  # the answer that is just being made goes first
            try:
                job()
            except (RoomError, OSError):
                continue  # whoever needs that room makes it, or fails, in front
