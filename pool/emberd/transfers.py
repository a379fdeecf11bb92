"""emberd's side of file transfers: it relays between a worker's stream and the room's own process."""

import os
import socket
from typing import Any, Dict, Generator, Iterator, NamedTuple, Optional, Tuple, Union

from emberpool.pool.emberd import blocks, channel, filecalls
from emberpool.pool.emberd.refusal import Refused
from emberpool.pool.emberd.room import Room, RoomError

Pieces = Generator[Union[bytes, Dict[str, Any]], None, None]
"""The bytes of a streamed answer, and at last what its end says. May raise Refused, which the end then tells."""


class Streamed(NamedTuple):
    """Status 200, and a body in frames."""

    headers: Tuple[Tuple[str, str], ...]
    pieces: Pieces


def take(
    room: Room, path: str, mode: int, folder: bool, size: Optional[int], pieces: Iterator[bytes]
) -> Dict[str, Any]:
    """Write what comes as a file or a folder, whole or not at all. Raises Refused, RoomError."""
    about = {"do": "take", "path": os.path.join(room.work, path), "mode": mode, "folder": folder, "size": size}
    return deliver(room, about, pieces)


def deliver(room: Room, about: Dict[str, Any], pieces: Iterator[bytes]) -> Dict[str, Any]:
    """Have a process of the room do what `about` says with what comes; its answer. Raises Refused, RoomError."""
    with room.files(about) as sock:
        try:
            for piece in pieces:
                blocks.send(sock, piece)
            blocks.send_end(sock)
        except channel.Closed:
            pass  # refused before all was read: the answer says why
        except socket.timeout:
            raise filecalls.too_slow() from None
        return filecalls.answer(sock)


def give(room: Room, path: str) -> Streamed:
    """What lies at `path`, as it is (a file) or as a tar archive (a folder). Raises Refused, RoomError."""
    sock = room.files({"do": "give", "path": os.path.join(room.work, path)})
    try:
        about = filecalls.answer(sock)
    except BaseException:
        sock.close()
        raise
    size = [] if about["size"] is None else [("x-ember-size", str(about["size"]))]
    headers = (("x-ember-kind", about["kind"]), ("x-ember-mode", oct(about["mode"])[2:]), *size)
    return Streamed(headers, _relayed(sock))


def _relayed(sock: socket.socket) -> Pieces:
    with sock:
        try:
            yield from blocks.received(sock)
        except channel.Closed:
            raise RoomError("the file call was cut off") from None
        except socket.timeout:
            raise filecalls.too_slow() from None
        yield filecalls.answer(sock)


def ask(room: Room, message: Dict[str, Any]) -> Dict[str, Any]:
    """A call of the room's file process that moves no bytes. Raises Refused, RoomError."""
    message = dict(message, path=os.path.join(room.work, message["path"]))
    with room.files(message) as sock:
        return filecalls.answer(sock)


def told(error: Refused) -> Dict[str, Any]:
    """What the last frame says of a stream that failed."""
    return {"error": error.word, "detail": error.detail}
