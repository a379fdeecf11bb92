"""The manifest of a pod whose jobs see its own files: what of them a job can change, as it was before the first job.

A job's user can change what it owns, what its mode lets others write, and what lies in a folder of that kind. All
else stays as it is without being looked at. So the whole tree is walked once, and a comparison reads those entries
only. A change of a file cannot be hidden: its change time is the kernel's, and its content is hashed besides.
"""

import hashlib
import os
import stat
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from emberpool.pool.emberd.removal import remove_tree

MOST_BYTES = 256 * 1024 * 1024
"""Files that jobs can write to, together; a pod with more cannot be swept."""
MOST_ENTRIES = 100_000
_NOT_FILES = {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "securityfs", "debugfs", "tracefs", "binfmt_misc"}
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The group's bit also stands for whatever an access list allows: it is the list's mask."""

Look = Tuple[object, ...]
"""What an entry looks like; two are equal only if nothing was done to it."""


class ManifestError(Exception):
    """No manifest can be made; the text names the path and says why."""


class Mount(NamedTuple):
    """One place of this mount namespace."""

    place: str
    kind: str
    read_only: bool


def mounts() -> List[Mount]:
    """All of them, in the order in which they were made."""
    found: List[Mount] = []
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            before, _, after = line.partition(b" - ")
            fields = before.split()
            place = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))
            kind, _, options = after.split(None, 2)
            read_only = b"ro" in fields[5].split(b",") or b"ro" in options.strip().split(b",")
            found.append(Mount(place, kind.decode("ascii", "replace"), read_only))
    return found


class Manifest:
    """Of one pod, for jobs of one user. Not safe for several threads at once."""

    def __init__(self, uid: int, spared: Iterable[str]) -> None:
        """Take it. `spared`: folders of emberd's own, with what is in them.

        Raises:
            ManifestError: there is too much that jobs can write to, or something that cannot be read.
        """
        self._uid, self._spared = uid, {os.path.realpath(path) for path in spared}
        self._mounts = {mount.place: mount for mount in mounts()}
        self._open: Set[str] = set()
        """Folders that jobs can make entries in."""
        self._before: Dict[str, Look] = {}
        self._bytes = 0
        for mount in self._mounts.values():
            if not mount.read_only and mount.kind not in _NOT_FILES and not self._is_spared(mount.place):
                self._walk(mount.place)

    @property
    def size(self) -> int:
        """Entries that are compared."""
        return len(self._before)

    def undo(self) -> None:
        """Remove what was not there before the first job. What cannot be removed is for `differences` to find."""
        for path in self._strangers():
            try:
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    remove_tree(path)
                else:
                    os.unlink(path)
            except OSError:
                continue

    def differences(self) -> List[str]:
        """What is not as it was before the first job, in words."""
        found = [f"{path} is new" for path in self._strangers()]
        for path, before in self._before.items():
            try:
                now: Optional[Look] = self._look(path, os.lstat(path))
            except OSError as error:
                found.append(f"{path}: {error.strerror}")
                continue
            if now != before:
                found.append(f"{path} was changed")
        return found

    def _strangers(self) -> List[str]:
        found: List[str] = []
        for folder in self._open:
            try:
                names = os.listdir(folder)
            except OSError:
                continue  # it is gone, which its own entry tells
            paths = (os.path.join(folder, name) for name in names)
            found.extend(path for path in paths if path not in self._before and not self._is_aside(path))
        return found

    def _walk(self, top: str) -> None:
        if not os.path.isdir(top):
            self._note(top, os.lstat(top), False)
            return
        waiting = [(top, self._note(top, os.lstat(top), False))]
        while waiting:
            folder, is_open = waiting.pop()
            for entry in self._entries(folder):
                if self._is_aside(entry.path):
                    continue
                about = entry.stat(follow_symlinks=False)
                writable = self._note(entry.path, about, is_open)
                if stat.S_ISDIR(about.st_mode):
                    waiting.append((entry.path, writable))

    def _entries(self, folder: str) -> "List[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except OSError as error:
            raise ManifestError(f"{folder}: {error.strerror}") from error

    def _note(self, path: str, about: os.stat_result, in_open: bool) -> bool:
        """Record an entry that a job can change, or put another one in the place of; True for an open folder."""
        can_write = self._can_write(about)
        if can_write or in_open:
            try:
                self._before[path] = self._look(path, about)
            except OSError as error:
                raise ManifestError(f"{path}: {error.strerror}") from error
            self._bytes += about.st_size if can_write and stat.S_ISREG(about.st_mode) else 0
            if self._bytes > MOST_BYTES or len(self._before) > MOST_ENTRIES:
                raise ManifestError(
                    f"{path}: jobs could change over {MOST_BYTES} bytes or {MOST_ENTRIES} entries of this pod's files"
                )
        is_open = can_write and stat.S_ISDIR(about.st_mode)
        if is_open:
            self._open.add(path)
        return is_open

    def _can_write(self, about: os.stat_result) -> bool:
        return not stat.S_ISLNK(about.st_mode) and (about.st_uid == self._uid or bool(about.st_mode & _OTHERS))

    def _look(self, path: str, about: os.stat_result) -> Look:
        mode = about.st_mode
        base: Look = (mode, about.st_uid, about.st_gid, about.st_dev, about.st_ino)
        if stat.S_ISDIR(mode):  # times and links change with what is in it, which is looked at itself
            return (*base, _attributes(path)) if self._can_write(about) else base
        if stat.S_ISREG(mode):
            content = _hash(path) if self._can_write(about) else ""
            return (*base, about.st_size, about.st_mtime_ns, about.st_ctime_ns, content)
        return (*base, about.st_rdev, os.readlink(path) if stat.S_ISLNK(mode) else "")

    def _is_aside(self, path: str) -> bool:
        """Not of the tree that is being looked at: emberd's own, or another mount."""
        return path in self._mounts or path in self._spared

    def _is_spared(self, place: str) -> bool:
        return any(place == path or place.startswith(path + "/") for path in self._spared)


def _attributes(path: str) -> Look:
    """A folder's access lists among them: they decide about files that are made in it later."""
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
        return tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)
    except OSError:
        return ()  # a file system without


def _hash(path: str) -> str:
    digest = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        for piece in iter(lambda: file.read(1024 * 1024), b""):
            digest.update(piece)
    return digest.hexdigest()
