"""Where a download's bytes go: whole or not at all; written in a thread, a piece at a time."""

import hashlib
import os
import posixpath
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from emberpool.activities.blobs import Place
from emberpool.activities.threads import in_thread
from emberpool.pool.client.transfers import Incoming
from emberpool.pool.emberd import archive
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable, SandboxFileError

T = TypeVar("T")

PART = b".part"


class Sink(ABC):
    """One target. All of it runs in threads."""

    @abstractmethod
    def add(self, data: bytes) -> None:
        """Take the next bytes."""

    @abstractmethod
    def finish(self) -> None:
        """That was all: show it."""

    @abstractmethod
    def drop(self) -> None:
        """It was cut: leave nothing. Idempotent, and harmless after `finish`."""


async def save(incoming: Incoming, place: Place, most: int, on_bytes: Callable[[int], None], owner: str = "") -> None:
    """Save what comes out of a pod. A folder goes into a folder, or into one archive if the target ends in .tar.

    Args:
        owner: names the call over all its attempts: what an earlier attempt of it left beside a local target, since
            its worker died, is removed first.

    Raises:
        SandboxFileError: it is over `most` bytes, or an entry of the folder is refused.
        InvalidInput: the target cannot hold it.
        PoolUnavailable: the target cannot be written.
    """
    if incoming.size is not None and incoming.size > most:
        raise _too_large(place, most)
    sink = await _called(place, lambda: _sink(incoming, place, most, owner))
    try:
        await _fill(sink, incoming.pieces, place, most, on_bytes)
        await _called(place, sink.finish)
    finally:
        await in_thread(sink.drop)


async def _fill(
    sink: Sink, pieces: AsyncIterable[bytes], place: Place, most: int, on_bytes: Callable[[int], None]
) -> None:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > most:
            raise _too_large(place, most)
        await _called(place, partial(sink.add, piece))
        on_bytes(len(piece))


async def _called(place: Place, do: Callable[[], T]) -> T:
    try:
        return await in_thread(do)
    except archive.BadEntry as error:
        raise SandboxFileError(place.url, error.word, str(error)) from error
    except OSError as error:
        raise PoolUnavailable(f"{place.url} cannot be written: {error}") from error


def _too_large(place: Place, most: int) -> SandboxFileError:
    return SandboxFileError(place.url, "too_large", f"more than {most} bytes: the worker's max_transfer_mb")


def _sink(incoming: Incoming, place: Place, most: int, owner: str) -> Sink:
    unpacked = incoming.folder and not place.path.endswith(".tar")
    if place.local:
        path = os.fsencode(place.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        begin = _part_begin(owner)
        _remove_parts(os.path.dirname(path), begin)
        if not unpacked:
            return LocalFile(path, incoming.mode, begin)
        _remove_parts(path, begin)
        return LocalFolder(path, most, begin)
    if unpacked:
        raise InvalidInput(
            "target", f"{place.url}: an object store keeps no links and modes: name a target that ends in .tar"
        )
    return RemoteFile(place)


def _part_begin(owner: str) -> bytes:
    """How the names of one call's parts begin. Each attempt has another end: one that is held up, and goes on beside
    its successor, then puts nothing of the successor's in its place."""
    named = hashlib.sha256(owner.encode()).hexdigest()[:16] if owner else secrets.token_hex(8)
    return f".emberpool-{named}-".encode()


def _remove_parts(folder: bytes, begin: bytes) -> None:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(begin) and entry.name.endswith(PART)):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _beside(path: bytes, begin: bytes) -> bytes:
    return os.path.join(os.path.dirname(path), begin + secrets.token_hex(4).encode() + PART)


class LocalFile(Sink):
    """Written beside, renamed at the end."""

    def __init__(self, path: bytes, mode: int, begin: bytes) -> None:
        if os.path.isdir(path):
            raise InvalidInput("target", f"{os.fsdecode(path)} is a folder, and a file comes")
        self._path, self._mode, self._beside = path, mode & 0o777, _beside(path, begin)
        self._file = open(self._beside, "xb")

    def add(self, data: bytes) -> None:
        self._file.write(data)

    def finish(self) -> None:
        self._file.close()
        os.chmod(self._beside, self._mode)
        os.replace(self._beside, self._path)

    def drop(self) -> None:
        self._file.close()
        if os.path.exists(self._beside):
            os.unlink(self._beside)


class LocalFolder(Sink):
    """Unpacked beside, or inside a folder that is there, and put in its place at the end."""

    def __init__(self, path: bytes, most: int, begin: bytes) -> None:
        if os.path.lexists(path) and not os.path.isdir(path):
            raise InvalidInput("target", f"{os.fsdecode(path)} is a file, and a folder comes")
        self._path = path
        self._beside = _beside(os.path.join(path, b"") if os.path.isdir(path) else path, begin)
        os.mkdir(self._beside, 0o700)
        self._unpacker = archive.Unpacker(self._beside, most, most)

    def add(self, data: bytes) -> None:
        self._unpacker.feed(data)

    def finish(self) -> None:
        self._unpacker.finish()
        archive.place(self._beside, self._path)
        self._unpacker.set_modes(self._path)

    def drop(self) -> None:
        self._unpacker.close()
        shutil.rmtree(self._beside, ignore_errors=True)


class RemoteFile(Sink):
    """One object, committed at the end: object stores show whole objects only."""

    def __init__(self, place: Place) -> None:
        filesystem = place.filesystem()
        parent = posixpath.dirname(filesystem._strip_protocol(place.url))
        with suppress(OSError):  # where it is needed and cannot be done, the open says so
            filesystem.makedirs(parent, exist_ok=True)
        self._file: Any = filesystem.open(place.url, "wb", autocommit=False)
        self._done = False

    def add(self, data: bytes) -> None:
        self._file.write(data)

    def finish(self) -> None:
        self._file.close()
        self._file.commit()
        self._done = True

    def drop(self) -> None:
        if not self._done:
            self._done = True
            self._file.discard()
