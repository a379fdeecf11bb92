"""Rooms as emberd itself sees them: it asks the zygote to make and end them, and talks to their inits."""

import os
import socket
import threading
import time
from typing import Any, Dict, List, Sequence

from emberpool.pool.emberd import channel
from emberpool.pool.emberd.config import RoomSpec, Shape
from emberpool.pool.emberd.shims import Shims

ROOM_START_S = 20.0
FILE_CALL_S = 60.0
PROOF_S, PROOF_EVERY_S = 2.0, 0.02
"""Longest wait for the proof that a command can be started, and between two attempts at it: what was killed may take a
kernel a moment to forget."""
OF_A_COMMAND = 3
"""Processes that there must be room for: who runs it, itself, and one that it starts."""


class RoomError(Exception):
    """The room cannot be made, or is gone."""


class ZygoteLink:
    """One question at a time to the zygote."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self._sock, self.pid = sock, pid
        self._lock = threading.Lock()

    def tell(self, message: Dict[str, Any]) -> None:
        """Send the first message, which has no answer."""
        channel.send(self._sock, message)

    def ask(self, message: Dict[str, Any], fds: Sequence[int] = ()) -> Dict[str, Any]:
        """Raises RoomError if the zygote could not do it."""
        try:
            with self._lock:
                answer = channel.ask(self._sock, message, fds)
        except channel.Closed:
            raise RoomError("the zygote is gone") from None
        if "error" in answer:
            raise RoomError(answer["error"])
        return answer


class Room:
    """A room that serves."""

    def __init__(self, link: ZygoteLink, folder: str, shape: Shape) -> None:
        """Make it. Raises RoomError."""
        self._link, self.folder, self.shape = link, folder, shape
        self._lock = threading.Lock()
        self.shims = Shims(self._ask_for_shim)
        """Their `take` and `make_ready` raise RoomError if the room is gone."""
        self._sock, other = channel.pair()
        try:
            about = {"binds": shape.root.binds, "overlay": shape.root.overlay, "memory_mb": shape.memory_mb}
            self.pid: int = link.ask({"do": "make", "folder": folder, **about}, [other.fileno()])["pid"]
        finally:
            other.close()
        self.ended = False
        facts = self._first_message()
        self.ipc: int = facts["ipc"]
        self.work: str = facts["work"]
        self.unfiltered: str = facts["unfiltered"]
        """Why no filter of system calls is on its jobs; empty if one is."""
        self.mounts: List[str] = facts.get("mounts", [])
        """As they were when it was made."""
        self.env: Dict[str, str] = {"HOME": facts["home"], "TMPDIR": facts["tmp"]}

    def _first_message(self) -> Dict[str, Any]:
        self._sock.settimeout(ROOM_START_S)
        try:
            facts = channel.receive(self._sock)[0]
        except (channel.Closed, socket.timeout):
            facts = {"error": "the room's first process ended before it was ready"}
        self._sock.settimeout(None)
        if "error" in facts:
            self.end()
            raise RoomError(facts["error"])
        return facts

    def proves_start(self) -> bool:
        """Whether the next command can be started, by a process that was, and by what the kernel would still allow.
        Raises RoomError."""
        deadline = time.monotonic() + PROOF_S
        while (left_s := deadline - time.monotonic()) > 0:
            if self._link.ask({"do": "count"})["left"] >= OF_A_COMMAND and self.shims.prove(left_s):
                return True
            time.sleep(PROOF_EVERY_S)
        return False

    def _ask_for_shim(self) -> socket.socket:
        mine, other = channel.pair()
        channel.allow_peer_pid(mine)
        try:
            self._send({"do": "shim"}, [other.fileno()])
        except RoomError:
            mine.close()
            raise
        finally:
            other.close()
        return mine

    def files(self, message: Dict[str, Any]) -> socket.socket:
        """Start a file call and return the socket that it is done over. Raises RoomError."""
        mine, other = channel.pair()
        try:
            self._send(message, [other.fileno()])
        except RoomError:
            mine.close()
            raise
        finally:
            other.close()
        mine.settimeout(FILE_CALL_S)
        return mine

    def inspect(self) -> Dict[str, Any]:
        """What a job would find in the room. Raises RoomError."""
        try:
            with self._lock:
                return channel.ask(self._sock, {"do": "inspect"})
        except (channel.Closed, OSError):
            raise RoomError("the room is gone") from None

    def end(self) -> bool:
        """Kill everything in it and wait until all is reaped. Idempotent. False if something lives on."""
        if self.ended:
            return True
        gone = bool(self._link.ask({"do": "end", "pid": self.pid})["ended"])
        self.ended = True
        self._sock.close()
        self.shims.close()
        return gone

    def _send(self, message: Dict[str, Any], fds: Sequence[int]) -> None:
        try:
            with self._lock:
                channel.send(self._sock, message, fds)
        except (channel.Closed, OSError):
            raise RoomError("the room is gone") from None


class Scratch:
    """The folders that rooms write to. A used one is renamed aside at once and deleted behind."""

    def __init__(self, spec: RoomSpec, link: ZygoteLink) -> None:
        self._spec, self._link, self._number = spec, link, 0
        self._rooms = os.path.join(spec.scratch, "rooms")
        self.trash = os.path.join(spec.scratch, "trash")
        """What waits for its deletion, and files without a name."""
        for folder in (self._rooms, self.trash):
            os.makedirs(folder, exist_ok=True)

    def fresh(self) -> str:
        """A folder for the next room; in plain mode there is only one place, whose rest was renamed aside."""
        self._number += 1
        if self._spec.mode == "plain":
            return self._spec.scratch
        folder = os.path.join(self._rooms, str(self._number))
        os.makedirs(folder)
        return folder

    def set_aside(self, folder: str) -> str:
        """Rename what a room wrote, and return where it lies for `delete`."""
        self._number += 1
        aside = os.path.join(self.trash, str(self._number))
        if self._spec.mode == "plain":
            os.makedirs(aside)
            for name in self._used():
                os.rename(os.path.join(folder, name), os.path.join(aside, name))
        else:
            os.rename(folder, aside)
        return aside

    def delete(self, aside: str) -> None:
        """Delete it at low priority, without waiting. Raises RoomError."""
        self._link.ask({"do": "delete", "folder": aside})

    def wipe(self) -> None:
        """At a start: whatever an earlier life left here is no room of ours."""
        for folder in (self._rooms, self.trash):
            for name in os.listdir(folder):
                self._number = max(self._number, int(name) if name.isdigit() else 0)
        if self._spec.mode == "plain":
            self.delete(self.set_aside(self._spec.scratch))
        for name in os.listdir(self._rooms):
            self.set_aside(os.path.join(self._rooms, name))
        for name in os.listdir(self.trash):
            self.delete(os.path.join(self.trash, name))

    def leftovers(self, room: Room) -> List[str]:
        """Files in the upper layer of a room that should be new, and folders of rooms that should be gone."""
        found: List[str] = []
        if self._spec.mode == "plain":
            return [name for name in self._used() if name not in _PLAIN]
        for _, _, names in os.walk(os.path.join(room.folder, "upper")):
            found.extend(names)
        own = os.path.basename(room.folder)
        return found + [name for name in os.listdir(self._rooms) if name != own]

    def _used(self) -> List[str]:
        return [name for name in os.listdir(self._spec.scratch) if name not in ("rooms", "trash", "layers")]


_PLAIN = ("work", "home", "tmp")
