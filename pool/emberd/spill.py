"""The whole output of a command that prints more than its answer may hold, kept on disk while the lease lasts.

In files without a name, which emberd alone holds open: no job can read, replace or keep one, and the kernel frees it
when it is closed, however emberd ends.
"""

import os
import tempfile
import threading
from typing import Iterator, Optional

PIECE = 256 * 1024
MOST_FILES = 128
"""Open at once."""
LEASE_SHARE = 4
"""All spills together may have this many times what one may."""


class SpillFolder:
    """Where spills lie, and how much they may take."""

    def __init__(self, folder: str, file_limit: int) -> None:
        """`file_limit`: bytes of one spill."""
        self._folder, self.file_limit = folder, file_limit
        self._lock = threading.Lock()
        self._files = self._used = 0

    def new(self) -> "Optional[Spill]":
        """An empty spill; None if there are too many, or the disk does not take it."""
        with self._lock:
            if self._files >= MOST_FILES:
                return None
            self._files += 1
        try:
            return Spill(_nameless(self._folder), self)
        except OSError:
            self.returned(0)
            return None

    def grant(self, wanted: int, size: int) -> int:
        """How many more bytes a spill of `size` may take, and count them."""
        with self._lock:
            left = LEASE_SHARE * self.file_limit - self._used
            granted = max(0, min(wanted, self.file_limit - size, left))
            self._used += granted
            return granted

    def returned(self, size: int) -> None:
        """A spill of that size is gone."""
        with self._lock:
            self._files -= 1
            self._used -= size

    @property
    def is_full(self) -> bool:
        """Whether the oldest should go."""
        with self._lock:
            return self._files > MOST_FILES // 2 or 2 * self._used > LEASE_SHARE * self.file_limit


class Spill:
    """One stream's bytes from its first on, up to the limit or the first that the disk did not take."""

    def __init__(self, fd: int, folder: SpillFolder) -> None:
        self._fd, self._folder = fd, folder
        self._lock = threading.Lock()
        self._full = False
        self.size = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes, as far as they may be kept; the rest is dropped."""
        with self._lock:
            if self._fd < 0 or self._full:
                return
            granted = self._folder.grant(len(data), self.size)
            self._full = granted < len(data)
            rest = memoryview(data)[:granted]
            try:
                while rest:
                    written = os.write(self._fd, rest)
                    self.size += written
                    rest = rest[written:]
            except OSError:
                self._full = True
                self._folder.grant(-len(rest), self.size)

    def read(self, offset: int) -> Optional[Iterator[bytes]]:
        """What is there from `offset` on, to its end also if the spill is closed meanwhile; None if it is closed
        already. Raises OSError."""
        with self._lock:
            if self._fd < 0:
                return None
            return _pieces(os.dup(self._fd), offset, self.size)

    def close(self) -> None:
        """Give the disk back. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._folder.returned(self.size)
                self.size = 0


def _nameless(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:  # not every file system can
        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)
        return fd


def _pieces(fd: int, offset: int, size: int) -> Iterator[bytes]:
    try:
        while offset < size:
            piece = os.pread(fd, min(PIECE, size - offset), offset)
            if not piece:
                raise OSError("the spill file is shorter than it was")
            yield piece
            offset += len(piece)
    finally:
        os.close(fd)
