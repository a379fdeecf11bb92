"""Unpacks an archive that nobody vouches for: nothing of it may land, or point, outside of its folder.

Entries are judged one by one and refused by name, by the rules of archive.py, which takes a stream as it comes: here
the whole archive is on the disk, may be compressed or a zip, and may have hard links.
"""

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from typing import IO, Any, Callable, Iterator, NamedTuple, Optional, cast

from emberpool.pool.emberd.archive import BadEntry, demand_inside, safe_path

MOST_BYTES = 8 * 1024 * 1024 * 1024
"""Unpacked size at which an archive is refused: a small one can be made to fill any disk."""
MOST_ENTRIES = 500_000
MOST_ZIP_ENTRIES = 100_000
"""zipfile holds the list of all of them in memory."""
BETWEEN_ENTRIES = 512 * 1024
"""Unpacked bytes that a tar archive may have in front of an entry: names and attributes, of which tarfile holds all."""


LEAST = 4096
"""What every entry takes on a disk at least."""

KEPT_MODE = 0o755
"""Bits of an entry's mode that stay: whoever else is in the pod may read a layer, and change nothing of it."""


class BadArchive(Exception):
    """It cannot be unpacked as it is; the text names the entry."""


class Entry(NamedTuple):
    """One entry of an archive, whatever its format."""

    name: str
    kind: str
    """file, folder, link (symbolic), hardlink, or other."""
    mode: int
    mtime: float
    size: int
    target: str
    """Of a link."""
    data: Optional[IO[bytes]]


def check(archive: str) -> int:
    """Judge every entry without writing anything; the size of all files together, in bytes.

    Raises:
        BadArchive: it is no archive, or an entry cannot be allowed.
        OSError: it cannot be read.
    """
    total = 0
    for entry in _judged(archive):
        total += entry.size
    return total


def unpack(archive: str, folder: str, go_on: Callable[[int], None] = lambda _: None) -> int:
    """Unpack into `folder`, which must be new and empty; the size of all files together, in bytes.

    `go_on` is called before each entry, with the bytes that all so far and this one take on a disk, and may raise.

    Raises:
        BadArchive, OSError: as `check`; what was written until then is the caller's to remove.
    """
    total = on_disk = 0
    for entry in _judged(archive):
        on_disk += max(LEAST, entry.size)
        go_on(on_disk)
        total += entry.size
        _write(folder, entry)
    return total


def _judged(archive: str) -> Iterator[Entry]:
    total = count = 0
    try:
        for entry in _zip_entries(archive) if zipfile.is_zipfile(archive) else _tar_entries(archive):
            count += 1
            total += entry.size
            if total > MOST_BYTES or count > MOST_ENTRIES:
                raise BadArchive(f"has over {MOST_BYTES} bytes or {MOST_ENTRIES} entries unpacked")
            _judge(entry)
            yield entry
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BadArchive(f"cannot be read as tar or zip: {error}") from error


def _judge(entry: Entry) -> None:
    """By the same rules as what is uploaded."""
    if entry.kind == "other":
        raise BadArchive(f"entry {entry.name!r} is neither file, folder nor link")
    try:
        path = safe_path(entry.name)
        if entry.kind == "link":
            demand_inside(entry.name, path, entry.target)
    except BadEntry as error:
        raise BadArchive(f"entry {error}") from error
    if entry.kind == "hardlink":
        try:
            safe = bool(safe_path(entry.target))
        except BadEntry:
            safe = False
        if not safe:
            raise BadArchive(f"entry {entry.name!r} is a link out of the folder, to {entry.target!r}")


def _write(folder: str, entry: Entry) -> None:
    name = os.path.normpath(entry.name)
    place = os.path.join(folder, name)
    if name == ".":
        return
    # A name may be harmless by itself and lead out through a link that came before it.
    _real_folders(folder, os.path.dirname(name), entry.name)
    if entry.kind == "folder":
        _real_folders(folder, name, entry.name)
        os.chmod(place, entry.mode & KEPT_MODE | 0o700)
        return
    if os.path.lexists(place):
        if stat.S_ISDIR(os.lstat(place).st_mode):
            raise BadArchive(f"entry {entry.name!r} is there as a folder already")
        os.unlink(place)
    if entry.kind == "link":
        os.symlink(entry.target, place)
    elif entry.kind == "hardlink":
        _link(folder, entry, place)
    else:
        _file(entry, place)


def _real_folders(folder: str, name: str, told: str) -> None:
    """Make the folders of `name` below `folder`, and refuse one that is anything else."""
    place = folder
    for part in name.split("/") if name not in ("", ".") else ():
        place = os.path.join(place, part)
        try:
            kind = os.lstat(place).st_mode
        except FileNotFoundError:
            os.mkdir(place, 0o755)
            continue
        if not stat.S_ISDIR(kind):
            raise BadArchive(f"entry {told!r} passes through {part!r}, which is no folder")


def _link(folder: str, entry: Entry, place: str) -> None:
    name = os.path.normpath(entry.target)
    _real_folders(folder, os.path.dirname(name), entry.name)
    source = os.path.join(folder, name)
    if not os.path.lexists(source) or not stat.S_ISREG(os.lstat(source).st_mode):
        raise BadArchive(f"entry {entry.name!r} links to {entry.target!r}, which is no file of the archive")
    os.link(source, place, follow_symlinks=False)


def _file(entry: Entry, place: str) -> None:
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        if entry.data is not None:
            shutil.copyfileobj(entry.data, file, 1024 * 1024)
        os.fchmod(fd, entry.mode & KEPT_MODE | 0o600)
    os.utime(place, (max(0.0, entry.mtime), max(0.0, entry.mtime)))


class _Measured:
    """An archive's unpacked bytes. tarfile reads headers, maps of sparse files and the like into memory whatever their
    size, and a few kilobytes unpack to gigabytes: so no more is given out than the entries so far account for."""

    def __init__(self, file: "IO[bytes]", lzma_error: "type[Exception]") -> None:
        self._file, self._lzma_error = file, lzma_error
        self._left = BETWEEN_ENTRIES

    def entry_of(self, size: int) -> None:
        """An entry begins, whose bytes and what comes before the next may be read."""
        self._left = size + BETWEEN_ENTRIES

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except (OSError, zlib.error, self._lzma_error) as error:
            if getattr(error, "errno", None) is not None:
                raise  # the disk, not the archive
            raise BadArchive(f"cannot be read as tar or zip: {error}") from error
        self._left -= len(data)
        if self._left < 0:
            raise BadArchive(f"has over {BETWEEN_ENTRIES} bytes of headers in front of an entry")
        return data


def _measured(file: "IO[bytes]") -> _Measured:
    magic, opened = file.read(6), file
    lzma_error: type[Exception] = OSError
    file.seek(0)
    try:
        if magic.startswith(b"\x1f\x8b"):
            opened = cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        elif magic.startswith(b"BZh"):
            import bz2  # not every image's Python has it

            opened = cast("IO[bytes]", bz2.BZ2File(file))
        elif magic.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
            import lzma

            from emberpool.pool.emberd.xz import XzReader

            opened, lzma_error = cast("IO[bytes]", XzReader(file)), lzma.LZMAError
    except ImportError as error:
        raise BadArchive(f"cannot be read here: this Python has no {error.name}") from error
    return _Measured(opened, lzma_error)


def _tar_entries(archive: str) -> Iterator[Entry]:
    with open(archive, "rb") as file:
        measured = _measured(file)
        with tarfile.open(fileobj=cast(Any, measured), mode="r|") as tar:
            yield from _members(tar, measured)


def _members(tar: tarfile.TarFile, measured: _Measured) -> Iterator[Entry]:
    for member in tar:
        if member.sparse is not None:
            raise BadArchive(f"entry {member.name!r} is a sparse file")
        kind = "other"
        if member.isreg():
            kind = "file"
        elif member.isdir():
            kind = "folder"
        elif member.issym():
            kind = "link"
        elif member.islnk():
            kind = "hardlink"
        data = tar.extractfile(member) if kind == "file" else None
        size = member.size if kind == "file" else 0
        measured.entry_of(size)
        yield Entry(member.name, kind, member.mode, float(member.mtime), size, member.linkname, data)
        cast(Any, tar).members.clear()  # it would keep every entry


def _zip_entries(archive: str) -> Iterator[Entry]:
    _demand_few(archive)
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                yield Entry(info.filename.rstrip("/") or ".", "folder", mode or 0o755, 0.0, 0, "", None)
            elif stat.S_ISLNK(mode):
                target = file.read(info).decode("utf-8", "surrogateescape") if info.file_size <= 4096 else ""
                yield Entry(info.filename, "link", 0o777, 0.0, 0, target, None)
            else:
                kind = "file" if stat.S_IFMT(mode) in (0, stat.S_IFREG) else "other"
                with file.open(info) as data:
                    yield Entry(info.filename, kind, mode & 0o777 or 0o644, 0.0, info.file_size, "", data)


def _demand_few(archive: str) -> None:
    count, before = 0, b""
    with open(archive, "rb") as file:
        for piece in iter(lambda: file.read(1024 * 1024), b""):
            count += (before + piece).count(b"PK\1\2")
            before = piece[-3:]
    if count > MOST_ZIP_ENTRIES:
        raise BadArchive(f"has over {MOST_ZIP_ENTRIES} entries, which only a tar archive may have")
