"""Files and folders of any size in and out of a room, listing and removing, by the room's own process.

What comes in lies beside its place, under another name, until the last byte is there: a reader never sees half of it,
and a transfer that is cut leaves nothing.
"""

import heapq
import os
import secrets
import shutil
import socket
import stat
from typing import Any, Callable, Dict, Iterator, List

from emberpool.pool.emberd import archive, blocks, channel
from emberpool.pool.emberd.config import Limits
from emberpool.pool.emberd.roomrefusal import FileRefused, demand_regular

LIST_MOST = 2000
"""Entries in one answer."""
LIST_BYTES = 256 * 1024
"""Characters of their names and links: an answer has to fit into a payload of Temporal."""
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}


def replace_file(path: bytes, mode: int, fill: Callable[[int], None]) -> None:
    """Have `fill` write a new file, and put it at `path` when it is whole. Parents are made; a link is followed."""
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    if os.path.lexists(path):
        demand_regular(os.lstat(path))
    temporary = os.path.join(folder, _temporary_name())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fill(fd)
            os.fchmod(fd, mode & 0o7777)
        finally:
            os.close(fd)  # before the rename: whoever runs the file at once must find no writer
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def take(sock: socket.socket, message: Dict[str, Any], limits: Limits) -> None:
    """Receive a file or a folder, in blocks."""
    path = channel.encoded(message["path"])
    most = limits.file_mb * 1024 * 1024
    if message["folder"]:
        counts = _take_folder(sock, os.path.realpath(path), most)
        channel.send(sock, {"bytes": counts.size, "entries": counts.entries})
        return
    size = 0

    def fill(fd: int) -> None:
        nonlocal size
        for block in blocks.received(sock):
            size += len(block)
            if size > most:
                raise FileRefused("too_large", f"more than the limit of {most} bytes (limits.file_mb)")
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(fd, rest) :]

    announced = message.get("size")
    if announced is not None and announced > most:
        raise FileRefused("too_large", f"{announced} bytes, the limit is {most} (limits.file_mb)")
    replace_file(path, int(message["mode"]), fill)
    channel.send(sock, {"bytes": size, "entries": 1})


def _take_folder(sock: socket.socket, path: bytes, file_limit: int) -> archive.Counts:
    beside = path if os.path.isdir(path) else os.path.dirname(path)
    os.makedirs(beside, exist_ok=True)
    if beside != path and os.path.lexists(path):
        raise FileRefused("not_a_file", "is a file, and a folder comes")
    temporary = os.path.join(beside, _temporary_name())
    os.mkdir(temporary, 0o700)
    unpacker = archive.Unpacker(temporary, file_limit, 1 << 62)
    try:
        for block in blocks.received(sock):
            unpacker.feed(block)
        counts = unpacker.finish()
        archive.place(temporary, path)
        unpacker.set_modes(path)
        return counts
    finally:
        unpacker.close()
        shutil.rmtree(temporary, ignore_errors=True)


def give(sock: socket.socket, message: Dict[str, Any], _limits: Limits) -> None:
    """Send a file or a folder: what it is, blocks, and whether it went well."""
    path = channel.encoded(message["path"])
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        packer = archive.Packer(path)
        channel.send(sock, {"kind": "folder", "size": None, "mode": stat.S_IMODE(found.st_mode)})
        _send_all(sock, packer.pieces())
        about = {"entries": packer.entries, "bytes": packer.size}
        channel.send(sock, dict(about, skipped=packer.skipped, skipped_names=packer.skipped_names))
        return
    demand_regular(found)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    found = os.fstat(fd)
    demand_regular(found)
    if found.st_dev == os.stat("/proc").st_dev:
        raise FileRefused("not_a_file", "lies on /proc, whose files have no size: read it with a command")
    channel.send(sock, {"kind": "file", "size": found.st_size, "mode": stat.S_IMODE(found.st_mode)})
    _send_all(sock, _pieces(fd, found.st_size))
    channel.send(sock, {"entries": 1, "bytes": found.st_size, "skipped": 0, "skipped_names": []})


def _send_all(sock: socket.socket, pieces: Iterator[bytes]) -> None:
    try:
        for piece in pieces:
            blocks.send(sock, piece)
    except (FileRefused, archive.BadEntry, OSError):
        blocks.send_end(sock)  # the error is the message after it
        raise
    blocks.send_end(sock)


def _pieces(fd: int, size: int) -> Iterator[bytes]:
    while size:
        piece = os.read(fd, min(archive.PIECE, size))
        if not piece:
            raise FileRefused("file_refused", "changed while it was read")
        yield piece
        size -= len(piece)


def list_folder(sock: socket.socket, message: Dict[str, Any], _limits: Limits) -> None:
    """Tell the entries of a folder in the order of their bytes, `LIST_MOST` at a time. Opens none of them."""
    path, after = channel.encoded(message["path"]), channel.encoded(message["after"])
    with os.scandir(path) as entries:
        names = heapq.nsmallest(LIST_MOST + 1, (entry.name for entry in entries if entry.name > after))
    told: List[Dict[str, Any]] = []
    size = 0
    for number, name in enumerate(names):
        about = _about(path, name)
        size += 0 if about is None else len(about["name"]) + len(about["target"])
        if number == LIST_MOST or (size > LIST_BYTES and told):
            channel.send(sock, {"entries": told, "more": True})
            return
        if about is not None:  # else it went meanwhile
            told.append(about)
    channel.send(sock, {"entries": told, "more": False})


def _about(folder: bytes, name: bytes) -> "Dict[str, Any] | None":
    whole = os.path.join(folder, name)
    try:
        found = os.lstat(whole)
        target = os.readlink(whole) if stat.S_ISLNK(found.st_mode) else b""
    except FileNotFoundError:
        return None
    return {
        "name": name.decode("utf-8", "surrogateescape"),
        "kind": _KINDS.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "modified_s": round(found.st_mtime, 3),
        "target": target.decode("utf-8", "surrogateescape"),
    }


def remove(sock: socket.socket, message: Dict[str, Any], _limits: Limits) -> None:
    """Remove a file, a link (never what it names) or a folder; one that is not empty only if `recursive`."""
    path = channel.encoded(message["path"])
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    elif message["recursive"]:
        shutil.rmtree(path)
    else:
        try:
            os.rmdir(path)
        except OSError as error:
            raise FileRefused("file_refused", f"{error.strerror}: a folder, give recursive") from error
    channel.send(sock, {})


def _temporary_name() -> bytes:
    return b".ember-" + secrets.token_hex(8).encode("ascii")
