"""Layers: archives that a pod keeps unpacked for as long as it lives, so that the next job of the same caller has them.

A layer is named by the SHA-256 of its archive, which is checked here: whoever sends it, the same name is the same
content. Jobs see all of a pod's layers, read-only; a pod never serves two tags, so they are all of one caller.
"""

import hashlib
import os
import re
import shutil
import threading
from typing import Any, Dict, Set

from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.roomroot import LAYERS_IN_ROOM, layers_folder
from emberpool.pool.emberd.unpack import BadArchive, unpack

MOST_KEPT = 16
"""Layers of one pod; the one that was used longest ago makes place, never one that the lease uses."""
_KEY = re.compile(r"[0-9a-f]{64}")


class Layers:
    """Every method may be called from any thread; one change at a time."""

    def __init__(self, scratch: str, mode: str) -> None:
        """What an earlier life left here is gone: its state is unknown."""
        self._ready, self._parts = layers_folder(scratch), os.path.join(scratch, "layers", "parts")
        self._seen = LAYERS_IN_ROOM if mode == "namespaces" else self._ready
        self._lock = threading.Lock()
        self._used: Dict[str, None] = {}
        """Every layer that is ready, the one used last at the end."""
        self._held: Set[str] = set()
        """What the lease has asked for."""
        shutil.rmtree(os.path.join(scratch, "layers"), ignore_errors=True)
        for folder in (self._ready, self._parts):
            os.makedirs(folder, mode=0o755)

    def tell(self, key: str) -> Dict[str, Any]:
        """How much of a layer is here, and where jobs see it once it is ready."""
        with self._lock:
            return self._told(_checked(key))

    def append(self, key: str, offset: int, data: bytes) -> Dict[str, Any]:
        """Take a part of the archive. Parts come in order; one that comes again is written again."""
        part = self._part(_checked(key))
        with self._lock:
            if key in self._used:
                return self._told(key)
            have = self._received(key)
            if offset > have:
                raise bad_request("offset", f"is {offset}, and {have} bytes are here")
            with open(part, "r+b" if have else "wb") as file:
                file.truncate(offset)
                file.seek(offset)
                file.write(data)
            return self._told(key)

    def finish(self, key: str) -> Dict[str, Any]:
        """The archive is whole: check its hash, unpack it, let jobs see it. Idempotent.

        Raises:
            Refused: 422 `bad_archive` if the hash is another one or an entry cannot be allowed; nothing is kept then.
        """
        part = self._part(_checked(key))
        with self._lock:
            if key not in self._used:
                try:
                    self._unpack(key, part)
                finally:
                    _remove(part)
                    shutil.rmtree(part + ".d", ignore_errors=True)
                self._make_place()
            return self._told(key)

    def path(self, key: str) -> str:
        """Where jobs see a layer that is ready. Raises Refused."""
        told = self.tell(key)
        if told["state"] != "ready":
            raise Refused(404, "not_found", f"layer {key} is not here")
        path: str = told["path"]
        return path

    def lease_ended(self) -> None:
        """No layer is held any more; parts that were never finished go."""
        with self._lock:
            self._held.clear()
            for name in os.listdir(self._parts):
                _remove(os.path.join(self._parts, name))

    def _unpack(self, key: str, part: str) -> None:
        if not os.path.exists(part):
            raise bad_request("layer", "nothing of it was sent")
        found = _sha256(part)
        if found != key:
            raise Refused(422, "bad_archive", f"its SHA-256 is {found}")
        folder = part + ".d"
        os.makedirs(folder, mode=0o755)
        try:
            unpack(part, folder)
        except BadArchive as error:
            raise Refused(422, "bad_archive", str(error)) from error
        except OSError as error:
            raise Refused(422, "file_refused", f"cannot be unpacked: {error.strerror or error}") from error
        os.rename(folder, os.path.join(self._ready, key))
        self._used[key] = None

    def _told(self, key: str) -> Dict[str, Any]:
        if key not in self._used:
            have = self._received(key)
            return {"key": key, "state": "partial" if have else "absent", "received": have, "path": ""}
        self._held.add(key)
        self._used[key] = self._used.pop(key)
        return {"key": key, "state": "ready", "received": 0, "path": f"{self._seen}/{key}"}

    def _make_place(self) -> None:
        for key in [key for key in self._used if key not in self._held][: max(0, len(self._used) - MOST_KEPT)]:
            del self._used[key]
            shutil.rmtree(os.path.join(self._ready, key), ignore_errors=True)

    def _received(self, key: str) -> int:
        try:
            return os.stat(self._part(key)).st_size
        except FileNotFoundError:
            return 0

    def _part(self, key: str) -> str:
        return os.path.join(self._parts, key)


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise bad_request("layer", "must be named by a SHA-256: 64 hex digits in lower case")
    return key


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1024 * 1024), b""):
            digest.update(piece)
    return digest.hexdigest()


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
