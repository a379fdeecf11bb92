"""The shims of one room, as emberd sees them: processes in it that each wait for a command to run."""

import os
import signal
import socket
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from emberpool.pool.emberd import channel

START_S = 15.0
"""Longest wait for a shim to say its first word; it says it before it does anything."""
MOST_READY = 2
"""One for the next command, and one for the one after it while that runs."""


class Shim(NamedTuple):
    """A process in the room that will run one command."""

    sock: socket.socket
    """Takes the command with its three streams, then tells how it ended; closed when nothing of its tree lives, unless
    it was asked to stay."""
    pid: Optional[int]
    """None: there was no process to be had."""

    def run(self, message: Dict[str, Any], streams: Sequence[int]) -> None:
        """Hand it its command. What becomes of it is told on `sock`, also if the shim was killed meanwhile."""
        if self.pid is None:
            return
        try:
            channel.send_down(self.sock, message, streams)
            os.kill(self.pid, signal.SIGCONT)  # a job may have stopped it
        except (OSError, channel.Closed):
            return


class Shims:
    """Those that stand ready. Safe from any thread."""

    def __init__(self, ask: Callable[[], socket.socket]) -> None:
        """`ask` has one made and returns its socket. What it raises, `make_ready` and `take` do."""
        self._ask = ask
        self._lock = threading.Lock()
        self._made: Optional[socket.socket] = None
        """Of one that was asked for and has not been heard of."""
        self._tried: List[Shim] = []
        """Those that have run a command and wait for another."""
        self._closed = False

    def make_ready(self) -> None:
        """Let the next command find one."""
        with self._lock:
            if self._made is None and not self._tried and not self._closed:
                self._made = self._ask()

    def take(self) -> Shim:
        """One that waits for its command; the caller's from now on."""
        while (shim := self._ready()) is not None:
            if shim.pid is not None and not channel.ended(shim.sock):
                return shim
            shim.sock.close()  # a job killed it
        return _heard(self._ask())

    def give_back(self, shim: Shim) -> None:
        """It was asked to stay after its command, and nothing of that is left."""
        with self._lock:
            if not self._closed and len(self._tried) < MOST_READY:
                self._tried.append(shim)
                return
        shim.sock.close()

    def close(self) -> None:
        """The room is gone. Idempotent."""
        with self._lock:
            self._closed = True
            if self._made is not None:
                self._made.close()
                self._made = None
            while self._tried:
                self._tried.pop().sock.close()

    def _ready(self) -> Optional[Shim]:
        """First one that has run a command before: what it needs lies in its own memory already."""
        with self._lock:
            if self._tried:
                return self._tried.pop()
            made, self._made = self._made, None
        return _heard(made) if made is not None else None


def _heard(sock: socket.socket) -> Shim:
    pid = channel.peer_pid(sock, START_S)
    sock.settimeout(None)
    return Shim(sock, pid)
