"""Where an upload's bytes come from: a file, a folder as an archive; read in a thread, a piece at a time."""

import os
import posixpath
import stat
import tarfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from emberpool.activities.blobs import Place
from emberpool.activities.threads import in_thread
from emberpool.pool.emberd import archive
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable

PIECE = archive.PIECE


@dataclass(frozen=True)
class Source:
    """What is there to be sent."""

    folder: bool
    size: int | None
    mode: int
    pieces: AsyncGenerator[bytes]


async def open_source(place: Place) -> Source:
    """Look at the place, and be ready to read it.

    Raises:
        InvalidInput: nothing is there, or nothing that has bytes.
    """
    return await in_thread(lambda: _local(place) if place.local else _remote(place))


def _local(place: Place) -> Source:
    path = os.fsencode(place.path)
    try:
        found = os.stat(path)
    except OSError as error:
        raise InvalidInput("source", f"{place.url} cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(found.st_mode):
        return Source(True, None, 0o755, _threaded(place, archive.Packer(path).pieces()))
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput("source", f"{place.url} is neither a file nor a folder")
    return Source(False, found.st_size, stat.S_IMODE(found.st_mode), _threaded(place, _file(path)))


def _file(path: bytes) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _remote(place: Place) -> Source:
    filesystem = place.filesystem()
    try:
        about: dict[str, Any] = filesystem.info(place.url)
    except (OSError, ValueError) as error:
        raise InvalidInput("source", f"{place.url} cannot be read: {error}") from error
    if about["type"] == "directory":
        return Source(True, None, 0o755, _threaded(place, _packed(filesystem, about["name"])))
    return Source(False, about.get("size"), 0o644, _threaded(place, _object(filesystem, place.url)))


def _object(filesystem: Any, name: str) -> Iterator[bytes]:
    with filesystem.open(name, "rb", block_size=4 * 1024 * 1024) as file:
        while piece := cast(bytes, file.read(PIECE)):
            yield piece


def _packed(filesystem: Any, root: str) -> Iterator[bytes]:
    """An archive of the objects below a prefix. Object stores know no modes and no links."""
    found: dict[str, dict[str, Any]] = filesystem.find(root, detail=True)
    for path, about in sorted(found.items()):
        if about["type"] != "file":
            continue
        name, size = posixpath.relpath(path, root), int(about["size"])
        yield archive.header(name, tarfile.REGTYPE, 0o644, size)
        sent = 0
        for piece in _object(filesystem, path):
            sent += len(piece)
            if sent <= size:
                yield piece
        if sent != size:
            raise OSError(f"{path} changed while it was read")
        yield archive.padding(size)
    yield archive.end()


async def _threaded(place: Place, pieces: Iterator[bytes]) -> AsyncGenerator[bytes]:
    """Each piece is read in a thread: files and object stores block."""
    with closing(cast(Any, pieces)):
        while True:
            try:
                piece = await in_thread(lambda: next(pieces, None))
            except archive.BadEntry as error:
                raise InvalidInput("source", f"{place.url}: {error}") from error
            except OSError as error:
                raise PoolUnavailable(f"{place.url} cannot be read: {error}") from error
            if piece is None:
                return
            if piece:
                yield piece
