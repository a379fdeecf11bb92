"""File calls, done by a process that lives in the room and may do only what a job may.

So every link is resolved in the room, and no path can lead out of it. Only regular files are opened: a FIFO or a
device would block for ever (openai/openai-agents-python#4891).
"""

import errno
import os
import secrets
import socket
import stat
from typing import Any, Dict, NoReturn

from emberpool.pool.emberd import channel, roomlayers
from emberpool.pool.emberd.config import Limits

PIECE = 256 * 1024


class _Refused(Exception):
    def __init__(self, word: str, detail: str) -> None:
        super().__init__(detail)
        self.word, self.detail = word, detail


def serve(sock: socket.socket, message: Dict[str, Any], limits: Limits) -> None:
    """Do one call and exit. Answers a message with `error` or the call's own fields, then a file's bytes follow."""
    try:
        if message["do"] == "get":
            _get(sock, message)
        elif message["do"] == "place":
            roomlayers.place(sock, message)
        else:
            _put(sock, message, limits)
    except _Refused as refusal:
        channel.send(sock, {"error": refusal.word, "detail": refusal.detail})
    except OSError as error:
        channel.send(sock, {"error": _word(error), "detail": error.strerror or str(error)})
    except channel.Closed:
        pass
    os._exit(0)


def _word(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "not_found"
    if error.errno in (errno.EISDIR, errno.ENXIO, errno.ELOOP):
        return "not_a_file"
    return "too_large" if error.errno == errno.EFBIG else "file_refused"


def _get(sock: socket.socket, message: Dict[str, Any]) -> None:
    path, limit = channel.encoded(message["path"]), int(message["limit"])
    _demand_regular(os.stat(path))  # before the open: to open a device may already do something
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    found = os.fstat(fd)
    _demand_regular(found)
    if found.st_dev == os.stat("/proc").st_dev:
        raise _Refused("not_a_file", "lies on /proc, whose files have no size: read it with a command")
    offset = message["offset"]
    if offset is None and found.st_size > limit:
        raise _Refused("too_large", f"{found.st_size} bytes, the limit is {limit}")
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
        raise _Refused("too_large", f"{message['size']} bytes, the limit is {most}")
    path = os.path.realpath(channel.encoded(message["path"]))
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    if os.path.lexists(path):
        _demand_regular(os.lstat(path))
    temporary = os.path.join(folder, b".ember-" + secrets.token_hex(8).encode("ascii"))
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _take(sock, fd, int(message["size"]))
        os.fchmod(fd, int(message["mode"]) & 0o7777)
        os.close(fd)  # before the rename: whoever runs the file at once must find no writer
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
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


def _demand_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        _refuse_kind(found)


def _refuse_kind(found: os.stat_result) -> NoReturn:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    raise _Refused("not_a_file", f"is {kinds.get(stat.S_IFMT(found.st_mode), 'a device')}")
