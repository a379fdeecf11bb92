"""Messages between emberd's own processes: one JSON object each, length first, with open files riding along.

A stream socket rather than packets, since an environment may be larger than a packet. Never exposed to a job.
"""

import array
import json
import marshal
import select
import socket
import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

_HEAD = struct.Struct("!I")
_END = struct.Struct("!i?")
_MOST_FDS = 16
_LOOK = 16 * 1024
"""Bytes: more than most messages have."""

Message = Dict[str, Any]


def encoded(text: str) -> bytes:
    """A path, argument or value as the kernel takes it, whatever this process's locale is."""
    return text.encode("utf-8", "surrogateescape")


class Closed(Exception):
    """The other side is gone."""


def pair() -> Tuple[socket.socket, socket.socket]:
    """Two connected ends, neither inherited by a command."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message. The files stay open here too.

    Raises:
        Closed: nobody will read it.
    """
    _send(sock, json.dumps(message).encode("ascii"), fds)


def send_down(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """The same to a process of emberd's own, which was forked from it, in less time. Never the other way: what such a
    message is made of must be trusted by who reads it.

    Raises:
        Closed: nobody will read it.
    """
    _send(sock, marshal.dumps(message), fds)


def _send(sock: socket.socket, body: bytes, fds: Sequence[int]) -> None:
    data = _HEAD.pack(len(body)) + body
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sent = sock.sendmsg([data], rights)
        if sent < len(data):
            sock.sendall(data[sent:])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def receive(sock: socket.socket) -> Tuple[Message, List[int]]:
    """Wait for one message and its files, which the caller must close.

    Raises:
        Closed: the other side is gone.
    """
    body, fds = _receive(sock)
    message: Message = json.loads(body)
    return message, fds


class Inbox:
    """What `send_down` has sent over one socket: each look takes all that is there."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._data = sock, b""
        self._fds: List[int] = []

    def next(self) -> Message:
        """Wait for one message. Its files are kept for `take_fds`.

        Raises:
            Closed: the other side is gone.
        """
        self._fill(_HEAD.size)
        size = _HEAD.size + _HEAD.unpack(self._data[: _HEAD.size])[0]
        self._fill(size)
        body, self._data = self._data[_HEAD.size : size], self._data[size:]
        message: Message = marshal.loads(body)
        return message

    def _fill(self, size: int) -> None:
        while len(self._data) < size:
            self._data += _part(self._sock, _LOOK, self._fds)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was taken beyond the last message."""
        return not self._data

    def take_fds(self) -> List[int]:
        """All files that came, which the caller must close."""
        fds, self._fds = self._fds, []
        return fds


def send_end(sock: socket.socket, status: int, left: bool) -> None:
    """Tell emberd how a command ended: its wait status, and whether any process of its tree is left.

    Raises:
        Closed: nobody will read it.
    """
    try:
        sock.sendall(_END.pack(status, left))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def receive_end(sock: socket.socket) -> Tuple[int, bool]:
    """Wait for what `send_end` tells.

    Raises:
        Closed: the other side is gone.
    """
    status, left = _END.unpack(_exactly(sock, _END.size, []))
    return int(status), bool(left)


def _receive(sock: socket.socket) -> Tuple[bytes, List[int]]:
    fds: List[int] = []
    head = _exactly(sock, _HEAD.size, fds)
    return _exactly(sock, _HEAD.unpack(head)[0], fds), fds


def ask(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> Message:
    """Send one message and wait for its answer."""
    send(sock, message, fds)
    return receive(sock)[0]


def _exactly(sock: socket.socket, size: int, fds: List[int]) -> bytes:
    data = b""
    while len(data) < size:
        data += _part(sock, size - len(data), fds)
    return data


def _part(sock: socket.socket, most: int, fds: List[int]) -> bytes:
    try:
        part, control, _, _ = sock.recvmsg(most, socket.CMSG_SPACE(_MOST_FDS * 4), socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError as error:
        raise Closed from error
    if not part:
        raise Closed
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
            fds.extend(numbers)
    return part


def peer_pid(sock: socket.socket, wait_s: float) -> Optional[int]:
    """Wait for the first byte on `sock` and return its sender's PID as seen from here; None if there was none.

    `allow_peer_pid` must have been called before the byte was sent.
    """
    sock.settimeout(wait_s)
    try:
        part, control, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(12))
    except socket.timeout:
        return None
    for level, kind, payload in control:
        if part and level == socket.SOL_SOCKET and kind == _SCM_CREDENTIALS:
            return int(struct.unpack("iII", payload[:12])[0])
    return None


def ended(sock: socket.socket) -> bool:
    """Whether the other side is gone, without waiting and without taking what it said."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))


_SO_PASSCRED = 16
_SCM_CREDENTIALS = 2


def allow_peer_pid(sock: socket.socket) -> None:
    """Ask the kernel to say who sends on the other end."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)
