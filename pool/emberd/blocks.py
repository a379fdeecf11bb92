"""A stream of unknown length between emberd and a room's process: blocks, length first, and an empty one at the end.

Whoever vanishes before the empty one has cut it: that is no end.
"""

import socket
import struct
from typing import Iterator

from emberpool.pool.emberd import channel

MAX_BLOCK = 1024 * 1024
_HEAD = struct.Struct("!I")


def send(sock: socket.socket, data: bytes) -> None:
    """Send one block, which must not be empty. Raises channel.Closed if nobody reads."""
    try:
        sock.sendall(_HEAD.pack(len(data)))
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise channel.Closed from error


def send_end(sock: socket.socket) -> None:
    """Say that this was all."""
    try:
        sock.sendall(_HEAD.pack(0))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise channel.Closed from error


def received(sock: socket.socket) -> Iterator[bytes]:
    """The blocks up to the end. Raises channel.Closed if it was cut."""
    while True:
        (size,) = _HEAD.unpack(_exactly(sock, _HEAD.size))
        if not size:
            return
        if size > MAX_BLOCK:
            raise channel.Closed
        yield _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            part = sock.recv(size - len(data))
        except ConnectionResetError as error:
            raise channel.Closed from error
        if not part:
            raise channel.Closed
        data += part
    return bytes(data)
