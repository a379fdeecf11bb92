"""Folders as tar archives, packed and unpacked piece by piece in bounded memory. Both sides of a transfer use it.

An archive comes from somebody who may lie, so every entry is judged before anything of it is written: nothing but
folders, files and links that stay inside, and nothing below a link (kubernetes/kubernetes#76788). The header blocks are
tarfile's; its extraction is not used, since 3.8 has no filter and every version reads headers of any size into memory.
"""

import os
import stat
import tarfile
from typing import Dict, Generator, Iterator, List, NamedTuple, Tuple

BLOCK = 512
PIECE = 256 * 1024
MAX_NAME_BLOCK = 64 * 1024
"""Longest extended header: names and links."""
SKIPPED_TOLD = 20
"""Names of left out FIFOs and devices that are told."""
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_END = b"\0" * BLOCK


class BadEntry(Exception):
    """An entry is refused, or cannot be read or written; the text names it."""

    def __init__(self, name: str, problem: str, word: str = "bad_archive") -> None:
        super().__init__(f"{name!r} {problem}")
        self.word = word


class Counts(NamedTuple):
    """What was moved."""

    entries: int
    size: int
    """Bytes of the files."""


def header(name: str, kind: bytes, mode: int, size: int = 0, target: str = "", mtime: int = 0) -> bytes:
    """The blocks before an entry's bytes. Names are bytes of the file system with surrogate escapes."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname, info.mtime = kind, mode & 0o777, size, target, max(0, mtime)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """What follows an entry of this many bytes."""
    return b"\0" * (-size % BLOCK)


def end() -> bytes:
    """What an archive ends with."""
    return _END * 2


class Packer:
    """Packs a folder of this file system. Links stay links; FIFOs, sockets and devices are left out and counted."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self.entries = 0
        self.size = 0
        self.skipped = 0
        self.skipped_names: List[str] = []

    def pieces(self) -> Iterator[bytes]:
        """The archive, at most `PIECE` bytes at a time. Raises BadEntry, OSError."""
        pending = bytearray()
        for piece in self._blocks():
            pending += piece
            if len(pending) >= PIECE:
                yield bytes(pending)
                pending.clear()
        yield bytes(pending + end())

    def _blocks(self) -> Iterator[bytes]:
        folders = [b""]
        while folders:
            below = folders.pop()
            for name in sorted(os.listdir(os.path.join(self._root, below))):
                path = os.path.join(below, name)
                found = os.lstat(os.path.join(self._root, path))
                if stat.S_ISDIR(found.st_mode):
                    folders.append(path)
                yield from self._entry(path, found)

    def _entry(self, path: bytes, found: os.stat_result) -> Iterator[bytes]:
        name = path.decode("utf-8", "surrogateescape")
        whole = os.path.join(self._root, path)
        if stat.S_ISDIR(found.st_mode):
            yield header(name, tarfile.DIRTYPE, found.st_mode)
        elif stat.S_ISLNK(found.st_mode):
            target = os.readlink(whole).decode("utf-8", "surrogateescape")
            yield header(name, tarfile.SYMTYPE, 0o777, target=target)
        elif stat.S_ISREG(found.st_mode):
            yield from self._file(name, whole)
        else:
            self.skipped += 1
            if len(self.skipped_names) < SKIPPED_TOLD:
                self.skipped_names.append(name)
            return
        self.entries += 1

    def _file(self, name: str, whole: bytes) -> Iterator[bytes]:
        fd = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise BadEntry(name, "changed while it was read", "file_refused")
            yield header(name, tarfile.REGTYPE, found.st_mode, found.st_size, mtime=int(found.st_mtime))
            left = found.st_size
            while left:
                data = os.read(fd, min(PIECE, left))
                if not data:
                    raise BadEntry(name, "changed while it was read", "file_refused")
                yield data
                left -= len(data)
        finally:
            os.close(fd)
        self.size += found.st_size
        yield padding(found.st_size)


_Parser = Generator[int, bytes, None]
"""Yields how many bytes it needs next, and is sent exactly those."""


class Unpacker:
    """Takes an archive in pieces of any size and unpacks it into `into`, an empty folder that nobody else writes to."""

    def __init__(self, into: bytes, file_limit: int, total_limit: int) -> None:
        self._into, self._file_limit, self._total_limit = into, file_limit, total_limit
        self._folders: Dict[bytes, int] = {}
        self._buffer = bytearray()
        self._parser = self._parse()
        self._wanted = next(self._parser)
        self._ended = False
        self._entries = self._size = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises BadEntry, OSError."""
        self._buffer += data
        while not self._ended and len(self._buffer) >= self._wanted:
            part = bytes(self._buffer[: self._wanted])
            del self._buffer[: self._wanted]
            try:
                self._wanted = self._parser.send(part)
            except StopIteration:
                self._ended = True
        if self._ended:
            self._buffer.clear()  # padding of the archive's last record

    def finish(self) -> Counts:
        """No more bytes come. Raises BadEntry if the archive is not whole."""
        if not self._ended:
            raise BadEntry("archive", "ended early")
        return Counts(self._entries, self._size)

    def close(self) -> None:
        """Let go of an open file. Idempotent."""
        self._parser.close()

    def set_modes(self, place: bytes) -> None:
        """Give the folders their modes where they lie now; before, they must stay writable."""
        for path, mode in reversed(list(self._folders.items())):  # a parent's may shut its children off
            if path:
                os.chmod(os.path.join(place, path), mode)

    def _parse(self) -> _Parser:
        extended: Dict[str, str] = {}
        while True:
            block = yield BLOCK
            if block == _END:
                return
            info = _read_header(block)
            if info.type in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL):
                if not 0 <= info.size <= MAX_NAME_BLOCK:
                    raise BadEntry(info.name, "has an extended header that is too long")
                data = (yield info.size + len(padding(info.size)))[: info.size]
                extended.update(_extended(info, data))
                continue
            _apply(info, extended)
            extended = {}
            yield from self._take(info)

    def _take(self, info: tarfile.TarInfo) -> _Parser:
        path = safe_path(info.name)
        if info.type == tarfile.DIRTYPE:
            self._folder(info.name, path, info.mode & 0o777)
        elif info.type == tarfile.SYMTYPE:
            demand_inside(info.name, path, info.linkname)
            self._make_way(info.name, path)
            os.symlink(info.linkname.encode("utf-8", "surrogateescape"), os.path.join(self._into, path))
        elif info.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            yield from self._file(info, path)
        else:
            raise BadEntry(info.name, f"is {_KINDS.get(info.type, 'of a kind that is not taken')}")
        self._entries += 1

    def _file(self, info: tarfile.TarInfo, path: bytes) -> _Parser:
        if not 0 <= info.size <= self._file_limit:
            raise BadEntry(info.name, f"has {info.size} bytes, the limit is {self._file_limit}", "too_large")
        if self._size + info.size > self._total_limit:
            raise BadEntry(info.name, f"goes over the limit of {self._total_limit} bytes in all", "too_large")
        self._make_way(info.name, path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        whole = os.path.join(self._into, path)
        fd = os.open(whole, flags, 0o600)
        try:
            left = info.size
            while left:
                rest = memoryview((yield min(PIECE, left)))
                left -= len(rest)
                while rest:
                    rest = rest[os.write(fd, rest) :]
            os.fchmod(fd, info.mode & 0o777)
            os.utime(fd, (info.mtime, info.mtime))
        finally:
            os.close(fd)
        self._size += info.size
        if padding(info.size):
            yield len(padding(info.size))

    def _folder(self, name: str, path: bytes, mode: int) -> None:
        if path and path not in self._folders:
            self._make_way(name, path)
            os.mkdir(os.path.join(self._into, path), 0o700)
        self._folders[path] = mode

    def _make_way(self, name: str, path: bytes) -> None:
        """Make the parents, none of which may be a link, and remove an earlier entry of the same name."""
        if not path or path in self._folders:
            raise BadEntry(name, "is a folder and something else")
        parent = os.path.dirname(path)
        if parent and parent not in self._folders:
            if os.path.lexists(os.path.join(self._into, parent)):
                raise BadEntry(name, "lies below a link or a file")
            self._folder(name, parent, 0o755)
        whole = os.path.join(self._into, path)
        if os.path.lexists(whole):
            os.unlink(whole)


_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a FIFO",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


def _read_header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise BadEntry("archive", f"is no tar archive: {error}") from None


def _extended(info: tarfile.TarInfo, data: bytes) -> Dict[str, str]:
    if info.type in (_LONG_NAME, _LONG_LINK):
        text = data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        return {"path" if info.type == _LONG_NAME else "linkpath": text}
    if info.type == _PAX_GLOBAL:
        return {}
    found: Dict[str, str] = {}
    while data.strip(b"\0"):
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(data):
            raise BadEntry(info.name, "has a broken extended header")
        field, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        found[field.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        data = data[int(length) :]
    return found


def _apply(info: tarfile.TarInfo, extended: Dict[str, str]) -> None:
    info.name = extended.get("path", info.name)
    info.linkname = extended.get("linkpath", info.linkname)
    if any(name.startswith("GNU.sparse") for name in extended):
        info.type = tarfile.GNUTYPE_SPARSE
    size = extended.get("size", "")
    if size:
        if not size.isdigit():
            raise BadEntry(info.name, "has a size that is no number")
        info.size = int(size)


def safe_path(name: str) -> bytes:
    """The entry's place below the folder; empty for the folder itself."""
    if name.startswith("/"):
        raise BadEntry(name, "has an absolute name")
    parts = [part for part in name.encode("utf-8", "surrogateescape").split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise BadEntry(name, "leads out by '..'")
    if any(b"\0" in part for part in parts):
        raise BadEntry(name, "holds a NUL byte")
    return b"/".join(parts)


def demand_inside(name: str, path: bytes, target: str) -> None:
    """A link may begin with as many '..' as its folder is deep, and have none later: a folder before it may be a link,
    from where '..' leads elsewhere."""
    if not target or target.startswith("/") or "\0" in target:
        raise BadEntry(name, f"is a link out of the folder, to {target!r}")
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    if ups > path.count(b"/") or ".." in parts[ups:]:
        raise BadEntry(name, f"is a link out of the folder, to {target!r}")


def place(folder: bytes, target: bytes) -> None:
    """Put an unpacked folder where it belongs: as it is if nothing is there, else file by file into the folder there.

    Raises:
        BadEntry: a file is where a folder belongs, or the other way round; nothing was moved then.
    """
    if not os.path.lexists(target):
        os.chmod(folder, 0o755)
        os.rename(folder, target)
        return
    moves = list(_moves(folder, target))
    for source, destination in moves:
        os.rename(source, destination)


def _moves(folder: bytes, target: bytes) -> Iterator[Tuple[bytes, bytes]]:
    pending = [b""]
    while pending:
        below = pending.pop()
        for name in os.listdir(os.path.join(folder, below)):
            path = os.path.join(below, name)
            source, destination = os.path.join(folder, path), os.path.join(target, path)
            comes = stat.S_ISDIR(os.lstat(source).st_mode)
            there = _is_folder(destination)
            if there is not None and there != comes:
                shown = path.decode("utf-8", "surrogateescape")
                kinds = ("a folder", "a file") if comes else ("a file", "a folder")
                raise BadEntry(shown, f"is {kinds[0]}, and {kinds[1]} is there", "not_a_file")
            if there and comes:
                pending.append(path)
            else:
                yield source, destination


def _is_folder(path: bytes) -> "bool | None":
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return None
