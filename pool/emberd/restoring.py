"""Takes the archive of a checkpoint into a room; done by a process that lives in the room, with a job's rights.

So an archive, whoever made it, can do nothing that a command of the same sandbox could not, and a link leads nowhere
but inside the room. It is replayed onto the room's own view: a deletion deletes what the image has, and the kernel
makes its own marks of it.
"""

import os
import shutil
import socket
import stat
import tarfile
from typing import Any, Dict, Generator, List, NamedTuple, Tuple

from emberpool.pool.emberd import archive, blocks, channel
from emberpool.pool.emberd.archive import BadEntry, Unpacker
from emberpool.pool.emberd.config import Limits
from emberpool.pool.emberd.saving import MADE_BY_ROOM


class Home(NamedTuple):
    """Where a name of the archive lies in the room."""

    name: bytes
    """Without the slash before it; empty: everything."""
    path: bytes


class Restorer(Unpacker):
    """Unpacks over what is there: an entry takes the place of what has its name."""

    def __init__(self, homes: List[Home], file_limit: int, total_limit: int) -> None:
        super().__init__(b"/", file_limit, total_limit)
        self._homes = homes
        self._modes: List[Tuple[bytes, int]] = []
        self._known_parent = b""

    def set_folder_modes(self) -> None:
        """Give the folders their modes; before, they must stay writable."""
        for path, mode in reversed(self._modes):
            os.chmod(path, mode)

    def _take(self, info: tarfile.TarInfo) -> Generator[int, bytes, None]:
        place = self._place(info.name)
        self._demand_parent(info.name, place)
        if info.type == tarfile.DIRTYPE:
            self._make_folder(place, info.mode & 0o7777)
        elif info.type == tarfile.CHRTYPE and not info.devmajor and not info.devminor:
            self._clear(info.name, place)
        elif info.type == tarfile.SYMTYPE:
            self._clear(info.name, place)
            os.symlink(info.linkname.encode("utf-8", "surrogateescape"), place)
        elif info.type == tarfile.LNKTYPE:
            earlier = self._place(info.linkname)
            self._demand_parent(info.linkname, earlier)
            self._clear(info.name, place)
            os.link(earlier, place, follow_symlinks=False)
        elif info.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            yield from self._file(info, place)
        else:
            raise BadEntry(info.name, "is of a kind that no checkpoint has")
        self._entries += 1

    def _make_way(self, name: str, path: bytes) -> None:
        self._clear(name, path)

    def _place(self, name: str) -> bytes:
        path = archive.safe_path(name)
        if not path or path.split(b"/")[0] in MADE_BY_ROOM:
            raise BadEntry(name, "is no place that a checkpoint restores")
        for home in self._homes:
            if not home.name:
                return os.path.join(home.path, path)
            if path == home.name or path.startswith(home.name + b"/"):
                return home.path + path[len(home.name) :]
        raise BadEntry(name, "lies in no folder that jobs of this pod write to")

    def _demand_parent(self, name: str, place: bytes) -> None:
        """All folders above it must be there as folders: below a link an entry would land elsewhere."""
        parent = os.path.dirname(place)
        if parent == self._known_parent:
            return
        above = b""
        for part in parent.split(b"/")[1:]:
            above += b"/" + part
            if part and not stat.S_ISDIR(os.lstat(above).st_mode):
                raise BadEntry(name, "lies below a link or a file")
        self._known_parent = parent

    def _make_folder(self, place: bytes, mode: int) -> None:
        try:
            has = os.lstat(place).st_mode
        except FileNotFoundError:
            has = 0
        if not stat.S_ISDIR(has):
            self._clear(os.fsdecode(place), place)
            os.mkdir(place, 0o700)
        if stat.S_IMODE(has) != mode | 0o700:
            os.chmod(place, mode | 0o700)
        if mode & 0o700 != 0o700:
            self._modes.append((place, mode))

    def _clear(self, name: str, place: bytes) -> None:
        try:
            found = os.lstat(place)
            self._known_parent = b""  # it may be what goes
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(place)
            else:
                os.unlink(place)
        except FileNotFoundError:
            return
        except RecursionError:
            raise BadEntry(name, "is nested too deep to be replaced", "file_refused") from None


def restore(sock: socket.socket, message: Dict[str, Any], limits: Limits) -> None:
    """Receive a checkpoint in blocks, and put all of it where it was."""
    homes = [Home(channel.encoded(name), channel.encoded(path)) for name, path in message["homes"]]
    restorer = Restorer(homes, limits.file_mb << 20, limits.disk_mb << 20)
    try:
        for block in blocks.received(sock):
            restorer.feed(block)
        counts = restorer.finish()
        restorer.set_folder_modes()
    finally:
        restorer.close()
    channel.send(sock, {"bytes": counts.size, "entries": counts.entries})
