"""Packs what a lease has changed: the archive of a checkpoint, read by emberd from the room's own layer.

The room's jobs may change the layer while it is read, so every folder is opened from its parent's descriptor and no
link is ever followed: nothing outside the layer can come into the archive. What an overlay's layer says about its
image goes in as a deletion, a character device 0/0: of a name that is gone (whiteout), or before a folder that hides
the image's (opaque). The entry is all that a restore needs, which has no right to make either.
"""

import errno
import os
import stat
import tarfile
from contextlib import contextmanager
from typing import Dict, Generator, Iterator, List, NamedTuple, Tuple

from emberpool.pool.emberd import archive
from emberpool.pool.emberd.archive import BLOCK, MAX_NAME_BLOCK, PIECE, SKIPPED_TOLD, BadEntry, padding

MADE_BY_ROOM = (b"dev", b"proc", b"layers")
"""Top folders of an overlay that the room itself makes: never part of a checkpoint."""
LONGEST_PATH = 4000
"""Bytes: what is nested deeper could not be restored by its path."""
LINKS_KNOWN = 65536
"""Files with several names that are told as such; of more, every name gets the bytes."""
_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Part(NamedTuple):
    """A folder of emberd's own view, and where jobs see it."""

    folder: str
    name: bytes
    """As jobs see it, without the slash before it; empty: the whole root."""
    overlay: bool = False
    """Whether it is an overlay's layer, with marks of what is deleted."""


class Saver:
    """One checkpoint. FIFOs, sockets and devices are left out and counted."""

    def __init__(self, parts: List[Part]) -> None:
        self._parts = parts
        self._seen: Dict[Tuple[int, int], bytes] = {}
        self.entries = 0
        self.size = 0
        self.skipped = 0
        self.skipped_names: List[str] = []

    def pieces(self) -> Iterator[bytes]:
        """The archive, about `PIECE` bytes at a time.

        Raises:
            BadEntry: a file changed while it was read, or is nested too deep.
            OSError: something cannot be read.
        """
        pending = bytearray()
        for part in self._parts:
            for piece in self._part(part):
                pending += piece
                if len(pending) >= PIECE:
                    yield bytes(pending)
                    pending.clear()
        yield bytes(pending + archive.end())

    def _part(self, part: Part) -> Iterator[bytes]:
        root = os.open(part.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if part.name:
                yield self._header(part.name, tarfile.DIRTYPE, os.fstat(root))
            waiting = [b""]
            while waiting:
                below = waiting.pop()
                yield from self._folder(part, root, below, waiting)
        finally:
            os.close(root)

    def _folder(self, part: Part, root: int, below: bytes, waiting: List[bytes]) -> Iterator[bytes]:
        with _opened(root, below) as folder:
            for name in sorted(os.fsencode(found) for found in os.listdir(folder)):
                path = os.path.join(below, name)
                if part.overlay and path in MADE_BY_ROOM:
                    continue
                try:
                    yield from self._entry(part, folder, path, waiting)
                except OSError as error:
                    raise _unreadable(_shown(part, path), error) from error

    def _entry(self, part: Part, folder: int, path: bytes, waiting: List[bytes]) -> Iterator[bytes]:
        name, full = os.path.basename(path), os.path.join(part.name, path)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if len(full) > LONGEST_PATH:
            raise BadEntry(_shown(part, path)[:200], "is nested too deep for a checkpoint", "file_refused")
        if stat.S_ISDIR(found.st_mode):
            if part.overlay and _is_opaque(folder, name):
                yield self._deletion(full)
            yield self._header(full, tarfile.DIRTYPE, found)
            waiting.append(path)
        elif stat.S_ISLNK(found.st_mode):
            yield self._header(full, tarfile.SYMTYPE, found, os.readlink(name, dir_fd=folder))
        elif stat.S_ISREG(found.st_mode):
            yield from self._file(folder, name, full)
        elif part.overlay and stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            yield self._deletion(full)
        else:
            self.skipped += 1
            if len(self.skipped_names) < SKIPPED_TOLD:
                self.skipped_names.append(_shown(part, path))

    def _file(self, folder: int, name: bytes, full: bytes) -> Iterator[bytes]:
        fd = _open_file(folder, name)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise _changed(full)
            earlier = self._seen.get((found.st_dev, found.st_ino))
            if earlier is not None:
                yield self._header(full, tarfile.LNKTYPE, found, earlier)
                return
            if found.st_nlink > 1 and len(self._seen) < LINKS_KNOWN:
                self._seen[found.st_dev, found.st_ino] = full
            yield self._header(full, tarfile.REGTYPE, found)
            yield from _content(fd, found, full)
            self.size += found.st_size
        finally:
            os.close(fd)

    def _header(self, full: bytes, kind: bytes, found: os.stat_result, target: bytes = b"") -> bytes:
        info = tarfile.TarInfo(full.decode("utf-8", "surrogateescape"))
        info.type, info.linkname = kind, target.decode("utf-8", "surrogateescape")
        info.mode = stat.S_IMODE(found.st_mode) if kind != tarfile.SYMTYPE else 0o777
        if kind == tarfile.REGTYPE:
            info.size, info.mtime = found.st_size, max(0, int(found.st_mtime))
        self.entries += 1
        return _blocks(info)

    def _deletion(self, full: bytes) -> bytes:
        info = tarfile.TarInfo(full.decode("utf-8", "surrogateescape"))
        info.type, info.mode = tarfile.CHRTYPE, 0
        self.entries += 1
        return _blocks(info)


def _content(fd: int, found: os.stat_result, full: bytes) -> Iterator[bytes]:
    left = found.st_size
    while left:
        data = os.read(fd, min(PIECE, left))
        if not data:
            raise _changed(full)
        yield data
        left -= len(data)
    now = os.fstat(fd)
    if (now.st_size, now.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
        raise _changed(full)
    yield padding(found.st_size)


@contextmanager
def _opened(root: int, path: bytes) -> Generator[int, None, None]:
    """The folder, reached by folders only. Those that their owner has shut are open for as long."""
    ways = [os.dup(root)]
    shut: List[Tuple[int, int]] = []
    try:
        for name in path.split(b"/") if path else []:
            try:
                ways.append(_open_folder(ways[-1], name))
            except OSError as error:
                raise _unreadable(path.decode("utf-8", "surrogateescape"), error) from error
            mode = stat.S_IMODE(os.fstat(ways[-1]).st_mode)
            if mode & 0o500 != 0o500:
                shut.append((ways[-1], mode))
                os.fchmod(ways[-1], mode | 0o700)
            elif len(ways) > 2 and not any(fd == ways[-2] for fd, _ in shut):
                os.close(ways.pop(-2))  # nothing to put back there
        yield ways[-1]
    finally:
        for fd, mode in shut:
            os.fchmod(fd, mode)
        for fd in ways:
            os.close(fd)


def _open_folder(parent: int, name: bytes) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except PermissionError:
        return _forced(parent, name, _FOLDER_FLAGS, 0o700)


def _open_file(parent: int, name: bytes) -> int:
    try:
        return os.open(name, _FILE_FLAGS, dir_fd=parent)
    except PermissionError:
        return _forced(parent, name, _FILE_FLAGS, 0o600)


def _forced(parent: int, name: bytes, flags: int, extra: int) -> int:
    """Open what its mode shuts off from its own user, who is emberd's too; the mode is as before at once."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        place = f"/proc/self/fd/{handle}"
        os.chmod(place, stat.S_IMODE(mode) | extra)  # not by name: it may be another file by now
        try:
            return os.open(place, flags & ~os.O_NOFOLLOW)
        finally:
            os.chmod(place, stat.S_IMODE(mode))
    finally:
        os.close(handle)


def _is_opaque(parent: int, name: bytes) -> bool:
    folder = _open_folder(parent, name)
    try:
        for mark in _OPAQUE:
            try:
                if os.getxattr(folder, mark) == b"y":
                    return True
            except OSError:
                continue  # no such mark, or a file system that keeps none
        return False
    finally:
        os.close(folder)


def _blocks(info: tarfile.TarInfo) -> bytes:
    data = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    if len(data) > MAX_NAME_BLOCK + 4 * BLOCK:
        raise BadEntry(info.name[:200], "has too long a name", "file_refused")
    return data


def _changed(full: bytes) -> BadEntry:
    name = full.decode("utf-8", "surrogateescape")
    return BadEntry(name, "changed while it was saved: end what writes to it first", "file_refused")


def _unreadable(name: str, error: OSError) -> BadEntry:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
        return BadEntry(name, "changed while it was saved: end what writes to it first", "file_refused")
    return BadEntry(name, f"cannot be saved: {error.strerror}", "file_refused")


def _shown(part: Part, path: bytes) -> str:
    return os.path.join(part.name, path).decode("utf-8", "surrogateescape")
