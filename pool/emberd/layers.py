"""Layers: archives that a pod keeps unpacked for as long as it lives, so that the next job of the same caller has them.

A layer is named by the SHA-256 of its archive, which is checked here: whoever sends it, the same name is the same
content. Jobs see all of a pod's layers, read-only; a pod never serves two tags, so they are all of one caller.
"""

import hashlib
import os
import re
import shutil
import tempfile
import threading
from typing import Any, Dict, List, Set

from emberpool.pool.emberd.diskusage import held
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.roomroot import LAYERS_IN_ROOM, layers_folder
from emberpool.pool.emberd.unpack import BadArchive, unpack

MOST_KEPT = 16
"""Layers of one pod; the one that was used longest ago makes place, never one that the lease uses."""
_KEY = re.compile(r"[0-9a-f]{64}")


class Layers:
    """Every method may be called from any thread; one change at a time."""

    def __init__(self, scratch: str, mode: str, disk_mb: int) -> None:
        """What an earlier life left here is gone: its state is unknown. `disk_mb`: MiB for all together."""
        self._limit = disk_mb * 1024 * 1024
        self._sizes: Dict[str, int] = {}
        """Bytes on disk of every layer that is ready."""
        self._ready, self._parts = layers_folder(scratch), os.path.join(scratch, "layers", "parts")
        self._seen = LAYERS_IN_ROOM if mode == "namespaces" else self._ready
        self._lock = threading.Lock()
        """Never held for long: the end of a lease waits for it."""
        self._unpacking = threading.Lock()
        """One archive at a time is unpacked."""
        self._leases = 0
        """Ended so far: what is under way for an earlier one stops."""
        self._used: Dict[str, None] = {}
        """Every layer that is ready, the one used last at the end."""
        self._held: Set[str] = set()
        """What the lease has asked for."""
        shutil.rmtree(os.path.join(scratch, "layers"), ignore_errors=True)
        os.makedirs(self._ready, mode=0o755)
        # Where no namespace keeps jobs out, nobody may move a folder aside while it is filled.
        os.makedirs(self._parts, mode=0o700)

    @property
    def bytes_used(self) -> int:
        """On disk, of all layers that are ready: part of what the jobs' files may take."""
        return sum(list(self._sizes.values()))

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
            self._demand_disk(offset + len(data))
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
        leases = self._leases
        with self._unpacking:
            if key not in self._used:
                try:
                    self._unpack(key, part, leases)
                finally:
                    shutil.rmtree(part + ".d", ignore_errors=True)
        self._make_place()
        return self.tell(key)

    def path(self, key: str) -> str:
        """Where jobs see a layer that is ready. Raises Refused."""
        told = self.tell(key)
        if told["state"] != "ready":
            raise Refused(404, "not_found", f"layer {key} is not here")
        path: str = told["path"]
        return path

    def lease_ended(self) -> None:
        """No layer is held any more; parts that were never finished go, and what is being unpacked stops."""
        with self._lock:
            self._leases += 1
            self._held.clear()
            for name in os.listdir(self._parts):
                _remove(os.path.join(self._parts, name))

    def _unpack(self, key: str, part: str, leases: int) -> None:
        aside, folder = part + ".whole", part + ".d"
        with self._lock:
            self._demand_lease(leases)
            if not os.path.exists(part):
                raise bad_request("layer", "nothing of it was sent")
            os.rename(part, aside)  # nobody appends to it now
        try:
            found = _sha256(aside)
            if found != key:
                raise Refused(422, "bad_archive", f"its SHA-256 is {found}")
            os.makedirs(folder, mode=0o755)
            unpack(aside, folder, lambda size: self._go_on(leases, size))
            size = held([folder], (), self._limit)
        except BadArchive as error:
            raise Refused(422, "bad_archive", str(error)) from error
        except OSError as error:
            raise Refused(422, "file_refused", f"cannot be unpacked: {error.strerror or error}") from error
        finally:
            _remove(aside)
        with self._lock:
            self._demand_lease(leases)
            os.rename(folder, os.path.join(self._ready, key))
            self._used[key], self._sizes[key] = None, size
            self._held.add(key)

    def _go_on(self, leases: int, size: int) -> None:
        self._demand_lease(leases)
        self._demand_disk(size)

    def _demand_disk(self, size: int) -> None:
        """What the lease does not use makes place afterwards; beside what it does, there must be place for `size`."""
        if size + sum(self._sizes.get(key, 0) for key in list(self._held)) > self._limit:
            raise Refused(422, "file_refused", f"layers may take {self._limit} bytes together (limits.disk_mb)")

    def _demand_lease(self, leases: int) -> None:
        if leases != self._leases:
            raise Refused(409, "stale_epoch", "the lease is over: its layer is not unpacked any further")

    def _told(self, key: str) -> Dict[str, Any]:
        if key not in self._used:
            have = self._received(key)
            return {"key": key, "state": "partial" if have else "absent", "received": have, "path": ""}
        self._held.add(key)
        self._used[key] = self._used.pop(key)
        return {"key": key, "state": "ready", "received": 0, "path": f"{self._seen}/{key}"}

    def _make_place(self) -> None:
        with self._lock:
            aside: List[str] = []
            for key in self._superfluous():
                del self._used[key], self._sizes[key]
                aside.append(tempfile.mkdtemp(dir=self._parts))
                os.rename(os.path.join(self._ready, key), os.path.join(aside[-1], key))
        for folder in aside:
            shutil.rmtree(folder, ignore_errors=True)

    def _superfluous(self) -> List[str]:
        """Not held, the one used longest ago first: as many as are too many, or take too much of the disk together."""
        gone: List[str] = []
        left, size = len(self._used), self.bytes_used
        for key in self._used:
            if left <= MOST_KEPT and size <= self._limit:
                break
            if key not in self._held:
                gone.append(key)
                left, size = left - 1, size - self._sizes[key]
        return gone

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
