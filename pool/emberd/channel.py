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
_LOOK, _MOST_AT_ONCE = 16 * 1024, 1024 * 1024
"""Bytes of one read: more than most messages have; of what a long one lacks."""

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
    body = json.dumps(message).encode("ascii")
    send_packed(sock, _HEAD.pack(len(body)) + body, fds)


def packed(message: Message) -> bytes:
    """A message to a process of emberd's own, which was forked from it, in less time than `send` takes. Never the other
    way: what such a message is made of must be trusted by who reads it."""
    body = marshal.dumps(message)
    return _HEAD.pack(len(body)) + body


def send_packed(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send a packed message, with files, which stay open here too.

    Raises:
        Closed: nobody will read it.
    """
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sent = sock.sendmsg([data], rights)
        if sent < len(data):
            sock.sendall(data[sent:])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def send_now(sock: socket.socket, data: bytes) -> bool:
    """The same of a short one, if it can be done without waiting: a job may keep the other side from reading.

    Raises:
        Closed: nobody will read it.
    """
    try:
        return sock.send(data, socket.MSG_DONTWAIT) > 0
    except BlockingIOError:
        return False
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
    """What `packed` messages were sent over one socket: each look takes all that is there."""

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
        parts, missing = [self._data], size - len(self._data)
        self._data = b""
        while missing > 0:
            parts.append(_part(self._sock, max(_LOOK, min(missing, _MOST_AT_ONCE)), self._fds))
            missing -= len(parts[-1])
        self._data = b"".join(parts)

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
    except OSError:
        return None  # too late, or it is gone
    for level, kind, payload in control:
        if part and level == socket.SOL_SOCKET and kind == _SCM_CREDENTIALS:
            return int(struct.unpack("iII", payload[:12])[0])
    return None


def first_byte(sock: socket.socket, wait_s: float) -> bytes:
    """Wait for the byte that `peer_pid` will take, and leave it there; empty if there was none."""
    sock.settimeout(wait_s)
    try:
        return sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return b""


def ended(sock: socket.socket) -> bool:
    """Whether the other side is gone, without waiting and without taking what it said."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))


def speaks(sock: socket.socket) -> bool:
    """Whether there is something to read, without waiting."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


_SO_PASSCRED = 16
_SCM_CREDENTIALS = 2


def allow_peer_pid(sock: socket.socket) -> None:
    """Ask the kernel to say who sends on the other end."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)
