"""The worker's layers on disk: each made once, however many ask for it at the same time; unused ones are deleted."""

import asyncio
import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from emberpool.pool.model.errors import InvalidInput, PoolUnavailable

_NAME = re.compile(r"[a-z]+-[0-9a-f]{64}")


@dataclass(frozen=True)
class Layer:
    """An archive on the worker's disk."""

    path: Path
    sha256: str
    """Of the archive: its name in pods."""


Make = Callable[[Path], Awaitable[None]]
"""Writes a layer's archive to the path that it is given."""


class LayerStore:
    """One per worker process; several may share a folder. A folder of the worker's own: what lies there is sent."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit = folder, limit_bytes
        self._making: dict[str, asyncio.Task[Layer]] = {}
        self._askers: Counter[str] = Counter()
        self._hashes: dict[str, str] = {}

    @asynccontextmanager
    async def layer(self, name: str, make: Make) -> AsyncGenerator[Layer]:
        """The layer `name` (KIND-64 hex digits), made now if it is not there; it stays while the block runs.

        What `make` raises reaches everybody who asked meanwhile, and the next one tries again. A maker whose askers all
        gave up is cancelled.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no layer's name")
        self._askers[name] += 1
        try:
            task = self._making.get(name)
            if task is None:
                task = self._making[name] = asyncio.create_task(self._have(name, make), name=f"emberpool-layer-{name}")
                task.add_done_callback(lambda ended: self._made(name, ended))
            yield await asyncio.shield(task)
        finally:
            self._askers[name] -= 1
            if not self._askers[name]:
                del self._askers[name]
                task = self._making.pop(name, None)  # whoever asks from now on begins anew
                if task is not None:
                    task.cancel()

    def _made(self, name: str, task: "asyncio.Task[Layer]") -> None:
        if self._making.get(name) is task:
            del self._making[name]
        if not task.cancelled():
            task.exception()  # whoever asked has it; nobody may be left who asked

    async def _have(self, name: str, make: Make) -> Layer:
        path = self._folder / f"{name}.layer"
        if not path.exists():
            await asyncio.to_thread(self._own_folder)
            handle, made = tempfile.mkstemp(dir=self._folder, prefix=".making-")
            os.close(handle)
            try:
                await make(Path(made))
                os.replace(made, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(made)
            self._hashes.pop(name, None)
        if name not in self._hashes:
            self._hashes[name] = await asyncio.to_thread(sha256_of, path)
        if name.startswith("bundle-") and self._hashes[name] != name.removeprefix("bundle-"):
            path.unlink(missing_ok=True)
            del self._hashes[name]
            raise PoolUnavailable(f"{name} was damaged on the worker's disk; it is fetched anew")
        os.utime(path)
        await asyncio.to_thread(self._make_place)
        return Layer(path, self._hashes[name])

    def _own_folder(self) -> None:
        """In a folder that others can write to, what jobs get would be theirs to choose."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = self._folder.lstat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022 or self._folder.is_symlink():
            raise InvalidInput("layer_dir", f"{self._folder} must belong to the worker's user, writable by nobody else")

    def _make_place(self) -> None:
        """Delete the layers that were asked for longest ago, until the rest is within the bound."""
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.glob("*.layer"):
            with suppress(FileNotFoundError):
                about = path.stat()
                found.append((about.st_mtime, about.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit:
                return
            if path.stem not in self._askers:
                path.unlink(missing_ok=True)
                total -= size


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex. Blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
