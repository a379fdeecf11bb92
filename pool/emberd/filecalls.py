"""emberd's side of a file call: it checks the request and moves the bytes; the room's own process does the rest."""

import os
import socket
from typing import Any, Dict, Tuple

from emberpool.pool.emberd import channel
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.room import Room, RoomError

MAX_BYTES = 64 * 1024 * 1024
_STATUS = {"not_found": 404, "too_large": 413, "not_a_file": 422, "file_refused": 422, "bad_archive": 422}


def put(room: Room, path: str, mode: int, data: bytes) -> None:
    """Write a file whole or not at all. Raises Refused (404, 413, 422), RoomError."""
    place = os.path.join(room.work, path)
    with room.files({"do": "put", "path": place, "mode": mode, "size": len(data)}) as sock:
        try:
            sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was read: the answer says why
        except socket.timeout:
            raise too_slow() from None
        answer(sock)


def get(room: Room, path: str, offset: "int | None", limit: int) -> Tuple[int, bytes]:
    """Size of the file, and at most `limit` bytes of it. Raises Refused (404, 413, 422), RoomError."""
    place = os.path.join(room.work, path)
    with room.files({"do": "get", "path": place, "offset": offset, "limit": limit}) as sock:
        found = answer(sock)
        data = bytearray()
        try:
            while len(data) < found["count"]:
                piece = sock.recv(min(262144, found["count"] - len(data)))
                if not piece:
                    raise Refused(422, "file_refused", "changed while it was read")
                data += piece
        except socket.timeout:
            raise too_slow() from None
        return found["size"], bytes(data)


def place(room: Room, source: str, path: str) -> None:
    """Copy the folder `source`, as the room sees it, into the folder `path`. Raises Refused (422), RoomError."""
    with room.files({"do": "place", "source": source, "path": os.path.join(room.work, path)}) as sock:
        answer(sock)


def checked_path(path: Any) -> str:
    """A path that the kernel can take."""
    if not isinstance(path, str) or not path:
        raise bad_request("path", "must be a text that is not empty")
    if "\0" in path:
        raise bad_request("path", "holds a NUL byte")
    try:
        channel.encoded(path)
    except UnicodeEncodeError:
        raise bad_request("path", "holds a lone surrogate") from None
    return path


def checked_mode(mode: Any) -> int:
    """Permission bits."""
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= 0o7777:
        raise bad_request("mode", "must be permission bits")
    return mode


def answer(sock: socket.socket) -> Dict[str, Any]:
    """What the room's process says. Raises Refused (its refusal), RoomError (it is gone)."""
    try:
        message = channel.receive(sock)[0]
    except channel.Closed:
        raise RoomError("the file call was cut off") from None
    except socket.timeout:
        raise too_slow() from None
    if "error" in message:
        raise Refused(_STATUS[message["error"]], message["error"], message["detail"])
    return message


def too_slow() -> Refused:
    """The room's process did not move on."""
    return Refused(422, "file_refused", "took too long")
