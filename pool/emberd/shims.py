"""The shims of one room, as emberd sees them: processes in it that each wait for a command to run."""

import os
import signal
import socket
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from emberpool.pool.emberd import channel, shim

START_S = 15.0
"""Longest wait for a new shim to say that it stands ready; it says so before it does anything."""
STOCK_S, AGAIN_S = 5.0, 1.0
"""The same for one that was asked for before it was needed, and for one that has run a command."""
SEND_S = 5.0
"""Longest wait for a shim to take its command: a job may keep it from running."""
FITS = 64 * 1024
"""Bytes that a socket takes also if nobody reads."""
MOST_READY = 2
"""One for the next command, and one for the one after it while that runs."""


class Shim(NamedTuple):
    """A process in the room that will run one command."""

    sock: socket.socket
    """Takes the command with its three streams, then tells how it ended; closed when nothing of its tree lives, unless
    it stays for another."""
    pid: Optional[int]
    """None: there was no process to be had."""

    def run(self, message: Dict[str, Any], streams: Sequence[int]) -> None:
        """Hand it its command. What becomes of it is told on `sock`, also if the shim was killed meanwhile."""
        if self.pid is None:
            return
        data = channel.packed(message)
        self.sock.settimeout(SEND_S)
        try:
            if len(data) > FITS:
                self.go_on()
            channel.send_packed(self.sock, data, streams)
            self.go_on()
        except (OSError, channel.Closed):
            _shut(self.sock)  # what it has of the command must not be run later
        self.sock.settimeout(None)

    def go_on(self) -> None:
        """A job may have stopped it. Raises ProcessLookupError: it is no more."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGCONT)


class Shims:
    """Those that stand ready, or are about to. Safe from any thread."""

    def __init__(self, ask: Callable[[], socket.socket]) -> None:
        """`ask` has one made and returns its socket. What it raises, `make_ready` and `take` do."""
        self._ask = ask
        self._lock = threading.Lock()
        self._new: List[socket.socket] = []
        self._tried: List[Shim] = []
        """Those that have run a command."""
        self._closed = False

    def make_ready(self) -> None:
        """Let the next command find one."""
        with self._lock:
            if not (self._new or self._tried or self._closed):
                self._new.append(self._ask())

    def prove(self, wait_s: float) -> bool:
        """Whether a command could be started now, as a new shim has found out, which stays for the next one."""
        sock = self._ask()
        if channel.first_byte(sock, wait_s) != shim.READY:
            sock.close()
            return False
        with self._lock:
            self._new.append(sock)
        return True

    def take(self) -> Shim:
        """One that waits for its command; the caller's from now on."""
        while True:
            with self._lock:
                tried = self._tried.pop() if self._tried else None
                new = self._new.pop() if tried is None and self._new else None
            if tried is not None:
                heard = _heard_again(tried)
            elif new is not None:
                heard = _heard(new, STOCK_S)
            else:
                return _heard(self._ask(), START_S)
            if heard.pid is not None and not channel.ended(heard.sock):
                return heard
            heard.sock.close()  # a job killed it, or it did not want to stay

    def give_back(self, shim: Shim) -> None:
        """Nothing of its command is left, and it may stay for another. Whether it does is heard when it is taken."""
        with self._lock:
            if not self._closed and len(self._tried) < MOST_READY:
                self._tried.append(shim)
                return
        shim.sock.close()

    def close(self) -> None:
        """The room is gone. Idempotent."""
        with self._lock:
            self._closed = True
            for sock in (*self._new, *(shim.sock for shim in self._tried)):
                sock.close()
            self._new, self._tried = [], []


def _heard(sock: socket.socket, wait_s: float) -> Shim:
    return Shim(sock, channel.peer_pid(sock, wait_s))


def _heard_again(shim: Shim) -> Shim:
    try:
        if not channel.speaks(shim.sock):
            shim.go_on()
    except OSError:
        return Shim(shim.sock, None)
    return _heard(shim.sock, AGAIN_S)


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
