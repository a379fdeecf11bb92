"""The folders of a stack: a data folder that one stack at a time owns, and a short private one for its sockets.

A unix socket's path has at most 107 bytes, and a data folder may lie anywhere; hence the second folder.
"""

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from emberpool.worker.stack.errors import StackError

PART = "data folder"
MAX_RUN_DIR = 60
"""Bytes in the runtime folder's path: 47 are left for what lies in it."""


class StackFolder(AbstractContextManager["StackFolder"]):
    """Owns a data folder from `with` to its end; the kernel lets go of it however the process ends."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(os.path.abspath(data_dir))
        self.run_dir = Path()
        self._lock: int | None = None

    @property
    def key_file(self) -> Path:
        return self.data_dir / "pool.key"

    @property
    def short_data_dir(self) -> Path:
        """The data folder by a link in the runtime folder: a short path, for sockets that have to lie in it."""
        return self.run_dir / "d"

    def __enter__(self) -> Self:
        """Make the folders and the pool key, and take the lock.

        Raises:
            StackError: the folder cannot be written, or another stack owns it.
        """
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = self._take_lock()
            self.run_dir = self._new_run_dir(self._lock)
            self.short_data_dir.symlink_to(self.data_dir)
            self._make_key()
        except OSError as error:
            self._let_go()
            cause = f"{self.data_dir} cannot be used: {error.strerror} ({error.filename})"
            raise StackError(PART, cause, "give a folder that you can write to with --data-dir") from error
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def _take_lock(self) -> int:
        lock = os.open(self.data_dir / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _owner(lock).get("pid", "unknown")
            os.close(lock)
            raise StackError(
                PART,
                f"{self.data_dir} is in use by another stack (pid {owner})",
                "stop that one, or give another folder with --data-dir",
            ) from error
        return lock

    def _new_run_dir(self, lock: int) -> Path:
        # A stack that was killed hard could not remove its own; we own the lock, so nobody uses it now.
        left = _owner(lock).get("run_dir")
        if isinstance(left, str) and Path(left).name.startswith("emberpool-"):
            shutil.rmtree(left, ignore_errors=True)
        run_dir = Path(tempfile.mkdtemp(prefix="emberpool-", dir=_runtime_root()))
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps({"pid": os.getpid(), "run_dir": str(run_dir)}).encode(), 0)
        return run_dir

    def _make_key(self) -> None:
        if self.key_file.exists():
            return
        # Renamed into place, so that a crash leaves no half a key.
        draft = self.data_dir / "pool.key.new"
        draft.unlink(missing_ok=True)
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w") as out:
            out.write(secrets.token_hex(32) + "\n")
        draft.replace(self.key_file)

    def _let_go(self) -> None:
        if self.run_dir != Path():
            shutil.rmtree(self.run_dir, ignore_errors=True)
            self.run_dir = Path()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _owner(lock: int) -> dict[str, object]:
    try:
        data: object = json.loads(os.pread(lock, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return dict(data) if isinstance(data, dict) else {}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _runtime_root() -> str:
    # XDG_RUNTIME_DIR is often set without being there: in containers, after su.
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = os.path.isdir(given) and os.access(given, os.W_OK | os.X_OK)
    return given if usable and len(os.fsencode(given)) + 20 <= MAX_RUN_DIR else "/tmp"
