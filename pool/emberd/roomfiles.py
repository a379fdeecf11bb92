"""File calls, done by a process that lives in the room and may do only what a job may.

So every link is resolved in the room, and no path can lead out of it. Only regular files are opened: a FIFO or a
device would block for ever (openai/openai-agents-python#4891).
"""

import errno
import os
import socket
from typing import Any, Callable, Dict

from emberpool.pool.emberd import archive, channel, restoring, roomlayers, roomtransfers
from emberpool.pool.emberd.config import Limits
from emberpool.pool.emberd.roomrefusal import FileRefused, demand_regular

PIECE = 256 * 1024


def serve(sock: socket.socket, message: Dict[str, Any], limits: Limits) -> None:
    """Do one call and exit. Answers a message with `error` or the call's own fields, then a file's bytes follow."""
    try:
        _CALLS[message["do"]](sock, message, limits)
    except FileRefused as refusal:
        _refuse(sock, refusal.word, refusal.detail)
    except archive.BadEntry as refusal:
        _refuse(sock, refusal.word, str(refusal))
    except OSError as error:
        _refuse(sock, _word(error), error.strerror or str(error))
    except channel.Closed:
        pass
    os._exit(0)


def _refuse(sock: socket.socket, word: str, detail: str) -> None:
    try:
        channel.send(sock, {"error": word, "detail": detail})
    except channel.Closed:
        pass


def _word(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "not_found"
    if error.errno in (errno.EISDIR, errno.ENXIO, errno.ELOOP):
        return "not_a_file"
    return "too_large" if error.errno == errno.EFBIG else "file_refused"


def _get(sock: socket.socket, message: Dict[str, Any], _limits: Limits) -> None:
    path, limit = channel.encoded(message["path"]), int(message["limit"])
    demand_regular(os.stat(path))  # before the open: to open a device may already do something
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    found = os.fstat(fd)
    demand_regular(found)
    if found.st_dev == os.stat("/proc").st_dev:
        raise FileRefused("not_a_file", "lies on /proc, whose files have no size: read it with a command")
    offset = message["offset"]
    if offset is None and found.st_size > limit:
        raise FileRefused("too_large", f"{found.st_size} bytes, the limit is {limit}")
    count = max(0, min(limit, found.st_size - (offset or 0)))
    channel.send(sock, {"size": found.st_size, "count": count})
    os.lseek(fd, offset or 0, os.SEEK_SET)
    while count:
        piece = os.read(fd, min(PIECE, count))
        if not piece:
            return  # it shrank meanwhile: emberd misses the bytes that were announced
        sock.sendall(piece)
        count -= len(piece)


def _put(sock: socket.socket, message: Dict[str, Any], limits: Limits) -> None:
    most = limits.file_mb * 1024 * 1024
    if message["size"] > most:
        raise FileRefused("too_large", f"{message['size']} bytes, the limit is {most}")
    path = channel.encoded(message["path"])
    roomtransfers.replace_file(path, int(message["mode"]), lambda fd: _take(sock, fd, int(message["size"])))
    channel.send(sock, {"bytes": message["size"]})


def _take(sock: socket.socket, fd: int, size: int) -> None:
    while size:
        piece = sock.recv(min(PIECE, size))
        if not piece:
            raise channel.Closed
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(fd, rest) :]
        size -= len(piece)


_CALLS: Dict[str, Callable[[socket.socket, Dict[str, Any], Limits], None]] = {
    "get": _get,
    "put": _put,
    "place": roomlayers.place,
    "take": roomtransfers.take,
    "give": roomtransfers.give,
    "list": roomtransfers.list_folder,
    "remove": roomtransfers.remove,
    "restore": restoring.restore,
}
