"""Keeps the head and the tail of a stream of any length in bounded memory, and counts the rest."""

from typing import Optional, Tuple

from emberpool.pool.emberd.spill import Spill, SpillFolder


class Capture:
    """One output stream of one execution."""

    def __init__(self, limit: int, spills: Optional[SpillFolder] = None) -> None:
        """Past `limit`, all of the stream goes to a spill too, if `spills` is given."""
        self._spills = spills
        self.spill: Optional[Spill] = None
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._keep = max(self._tail_limit, TAIL_BYTES)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes written in all."""

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._spill_over(data)
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._keep + 65536:  # now and then, so that the cost stays linear
            del self._tail[: -self._keep]

    def _spill_over(self, data: bytes) -> None:
        if self.spill is not None:
            self.spill.add(data)
        elif self._spills is not None and self.total + len(data) > self._head_limit + self._tail_limit:
            self.spill = self._spills.new()
            self._spills = None
            if self.spill is not None:
                self.spill.add(bytes(self._head + self._tail))  # nothing was left out so far
                self.spill.add(data)

    @property
    def truncated(self) -> bool:
        """Whether bytes are left out of `kept`."""
        return self.total > self._head_limit + self._tail_limit

    def kept(self) -> bytes:
        """All of it, or first and last half of the limit with a line between that says how much is missing."""
        if not self.truncated:
            return bytes(self._head + self._tail)
        missing = self.total - self._head_limit - self._tail_limit
        tail = self._tail[len(self._tail) - self._tail_limit :]
        return bytes(self._head) + b"\n[... %d bytes left out ...]\n" % missing + bytes(tail)

    def since(self, offset: int, limit: int) -> Tuple[int, bytes]:
        """Where the first kept byte at or after `offset` lies, and at most `limit` bytes from there."""
        if offset < len(self._head):
            return offset, bytes(self._head[offset : offset + limit])
        first = self.total - len(self._tail)
        start = max(offset, first)
        return start, bytes(self._tail[start - first : start - first + limit])

    def tail(self) -> bytes:
        """The last bytes, for people who watch it run."""
        if len(self._tail) >= TAIL_BYTES:
            return bytes(self._tail[-TAIL_BYTES:])
        return bytes((self._head[-TAIL_BYTES:] + self._tail)[-TAIL_BYTES:])


TAIL_BYTES = 1024
