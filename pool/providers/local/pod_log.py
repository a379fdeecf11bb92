"""Where a pod's standard error goes: one bounded file per pod, kept for a while after the pod's end."""

import asyncio
import contextlib
import os
from pathlib import Path

LOG_LIMIT = 256 * 1024
"""Bytes kept per pod; emberd writes little, so what goes beyond is a program gone wild."""
LOGS_KEPT = 200
"""Logs kept in the folder, the latest ones."""
FULL = b"\n[emberpool: the log is full, the rest is dropped]\n"
DETAIL_LIMIT = 300


class PodLog:
    """Writes one pod's log and remembers its last line, which tells best why a pod ended."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises OSError if the log cannot be written."""
        self.path = folder / f"{name}.log"
        self._file = self.path.open("wb", buffering=0)
        self._left = LOG_LIMIT
        self._tail = b""

    @property
    def last_line(self) -> str:
        """The last line that holds anything, cut to a length for people."""
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:DETAIL_LIMIT]

    def write(self, data: bytes) -> None:
        """Append, up to the limit. A full disk loses the log, never the pod."""
        self._tail = (self._tail + data)[-4096:]
        if self._left <= 0:
            return
        with contextlib.suppress(OSError):
            self._file.write(data[: self._left])
            if len(data) >= self._left:
                self._file.write(FULL)
        self._left -= len(data)

    async def drain(self, source: asyncio.StreamReader) -> None:
        """Copy `source` to its end."""
        while data := await source.read(64 * 1024):
            self.write(data)

    def close(self) -> None:
        self._file.close()


def prune_logs(folder: Path, keep: int = LOGS_KEPT) -> None:
    """Delete all but the `keep` latest logs."""
    with contextlib.suppress(OSError):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        for entry in entries[keep:]:
            os.unlink(entry.path)
