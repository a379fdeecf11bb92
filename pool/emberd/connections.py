"""Bounds how many connections emberd has open: whoever reaches its address could else take a thread with each.

When there are too many, one makes place that has not yet sent a request with the key, else one whose worker keeps it
open for later. One that is being served never does.
"""

import socket
import time
from collections import OrderedDict
from threading import Lock
from typing import Dict, Optional

MOST = 256
FIRST_S = 10.0
"""Within this a connection's handshake is over and its first request known to be made with the key."""
_NEW, _KEPT, _BUSY = 0, 1, 2


class Connections:
    """Safe from any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[socket.socket, int] = OrderedDict()
        """Open ones, the one longest in its state first."""
        self._new_until: Dict[socket.socket, float] = {}

    def admit(self, connection: socket.socket) -> bool:
        """Take a new one; False if it must be closed, since all others are being served."""
        with self._lock:
            if len(self._known) >= self._most:
                other = (self._first(_NEW) or self._first(_KEPT)) if self._most else None
                if other is None:
                    return False
                del self._known[other]
                _shut(other)
            self._known[connection] = _NEW
            self._new_until[connection] = time.monotonic() + FIRST_S
            return True

    def new_until(self, connection: socket.socket) -> float:
        """When it must have sent a request with the key, by the monotonic clock; of one that is no more: long ago."""
        with self._lock:
            return self._new_until.get(connection, 0.0)

    def serving(self, connection: socket.socket) -> None:
        """It has sent a request with the key."""
        self._move(connection, _BUSY)

    def served(self, connection: socket.socket) -> None:
        """That was answered."""
        self._move(connection, _KEPT)

    def end(self) -> None:
        """Shut all of them, and take no more: emberd ends its jobs next, and must not tell of that as of their end."""
        with self._lock:
            self._most = 0
            for connection in self._known:
                _shut(connection)

    def closed(self, connection: socket.socket) -> None:
        """It is no more. Idempotent."""
        with self._lock:
            self._known.pop(connection, None)
            self._new_until.pop(connection, None)

    def _move(self, connection: socket.socket, state: int) -> None:
        with self._lock:
            if self._known.get(connection, _NEW) != state and connection in self._known:
                self._known[connection] = state
                self._known.move_to_end(connection)

    def _first(self, state: int) -> Optional[socket.socket]:
        return next((one for one, its in self._known.items() if its == state), None)


def _shut(connection: socket.socket) -> None:
    """Its thread reads the end of it, and closes it."""
    try:
        # Not the method of a TLS socket, which would first take its keys from the thread that uses them.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        return
