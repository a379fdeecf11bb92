"""What comes on a connection, with a limit on when all of it has come: a socket's own time limit begins anew with each
byte, so that whoever sends one now and then would keep a connection for as long as he likes."""

import io
import socket
import time
from typing import Any, Optional


class Arriving(io.RawIOBase):
    """The bytes of a connection, also of one with TLS upon it."""

    def __init__(self, connection: socket.socket, ends: float) -> None:
        """`ends`: see there."""
        self._connection = connection
        self._bytes = connection.makefile("rb", buffering=0)
        self.ends: Optional[float] = ends
        """Nothing is taken after this (by the monotonic clock); None: the socket's own time limit is the only one."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        """Raises socket.timeout: it is too late."""
        if self.ends is not None:
            left = self.ends - time.monotonic()
            if left <= 0:
                raise socket.timeout("timed out")
            self._connection.settimeout(left)
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()
