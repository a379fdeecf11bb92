"""The manifest of a pod whose jobs see its own files: what of them a job can change, as it was before the first job.

A job's user can change what it owns, what its mode lets others write, and what lies in a folder of that kind. All
else stays as it is without being looked at. So the whole tree is walked once, and a comparison reads those entries
only. A change of a file cannot be hidden: its change time is the kernel's, and its content is hashed besides, if all
else is as it was: what a job made grow is not read.
"""

import hashlib
import os
import stat
from contextlib import contextmanager
from typing import Dict, Generator, Iterable, List, NamedTuple, Set, Tuple

from emberpool.pool.emberd.removal import remove_tree

MOST_BYTES = 256 * 1024 * 1024
"""Files that jobs can write to, together; a pod with more cannot be swept."""
MOST_ENTRIES = 100_000
_NOT_FILES = {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "securityfs", "debugfs", "tracefs", "binfmt_misc"}
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The group's bit also stands for whatever an access list allows: it is the list's mask."""

_PIECE = 1024 * 1024
_ON_THE_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Look = Tuple[object, ...]
"""What an entry looks like from outside, content apart; two are equal only if nothing was done to it."""


class Entry(NamedTuple):
    """One that jobs can change."""

    look: Look
    place: Tuple[int, int]
    """Its device and inode."""
    content: str
    """Hex SHA-256 of a file that they can write to."""


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
        self._before: Dict[str, Entry] = {}
        self._bytes = 0
        for mount in self._mounts.values():
            if not mount.read_only and mount.kind not in _NOT_FILES and not _is_below(mount.place, self._spared):
                self._walk(mount.place)

    @property
    def size(self) -> int:
        """Entries that are compared."""
        return len(self._before)

    def undo(self) -> None:
        """Remove what was not there before the first job. What cannot be removed is for `differences` to find."""
        for folder in self._open:
            with self._inside(folder) as fd:
                for name in self._strangers(folder, fd):
                    _remove(f"/proc/self/fd/{fd}/{name}")

    def differences(self) -> List[str]:
        """What is not as it was before the first job, in words."""
        found: List[str] = []
        for folder in self._open:
            with self._inside(folder) as fd:
                found.extend(f"{os.path.join(folder, name)} is new" for name in self._strangers(folder, fd))
        for path, before in self._before.items():
            try:
                if not self._is_as(path, before):
                    found.append(f"{path} was changed")
            except OSError as error:
                found.append(f"{path}: {error.strerror}")
        return found

    def _is_as(self, path: str, before: Entry) -> bool:
        about = os.lstat(path)
        if self._look(path, about) != before.look:
            return False
        return not before.content or _hash(path, about) == before.content

    @contextmanager
    def _inside(self, folder: str) -> Generator[int, None, None]:
        """The folder itself, as it was before the first job; -1 if something else is in its place, or of a folder above
        it: then its own entry tells so, and what lies there is nothing that a job has left."""
        try:
            fd = _opened(folder)
        except OSError:
            yield -1
            return
        try:
            about = os.fstat(fd)
            yield fd if (about.st_dev, about.st_ino) == self._before[folder].place else -1
        finally:
            os.close(fd)

    def _strangers(self, folder: str, fd: int) -> List[str]:
        """Names in it that were not there."""
        if fd < 0:
            return []
        paths = ((name, os.path.join(folder, name)) for name in os.listdir(fd))
        return [name for name, path in paths if path not in self._before and not self._is_aside(path)]

    def _walk(self, top: str) -> None:
        if not os.path.isdir(top):
            self._note(top, os.lstat(top), False)
            return
        waiting = [(top, self._note(top, os.lstat(top), False))]
        while waiting:
            folder, is_open = waiting.pop()
            for entry in _entries(folder):
                if self._is_aside(entry.path):
                    continue
                about = entry.stat(follow_symlinks=False)
                writable = self._note(entry.path, about, is_open)
                if stat.S_ISDIR(about.st_mode):
                    waiting.append((entry.path, writable))

    def _note(self, path: str, about: os.stat_result, in_open: bool) -> bool:
        """Record an entry that a job can change, or put another one in the place of; True for an open folder."""
        can_write = self._can_write(about)
        if can_write or in_open:
            is_read = can_write and stat.S_ISREG(about.st_mode)
            self._bytes += about.st_size if is_read else 0
            if self._bytes > MOST_BYTES or len(self._before) >= MOST_ENTRIES:
                raise ManifestError(
                    f"{path}: jobs could change over {MOST_BYTES} bytes or {MOST_ENTRIES} entries of this pod's files"
                )
            try:
                content = _hash(path, about) if is_read else ""
                self._before[path] = Entry(self._look(path, about), (about.st_dev, about.st_ino), content)
            except OSError as error:
                raise ManifestError(f"{path}: {error.strerror}") from error
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
            return (*base, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        return (*base, about.st_rdev, os.readlink(path) if stat.S_ISLNK(mode) else "")

    def _is_aside(self, path: str) -> bool:
        """Not of the tree that is being looked at: emberd's own, or another mount."""
        return path in self._mounts or path in self._spared


def remove_owned(uid: int, spared: Iterable[str]) -> None:
    """Remove all that is one user's, which nobody in the pod is now, wherever this mount namespace can be written to.

    Raises:
        ManifestError: something stays, or cannot be looked at.
    """
    own = {os.path.realpath(path) for path in spared}
    found = {mount.place: mount for mount in mounts()}
    open_ones = [mount.place for mount in found.values() if not mount.read_only and mount.kind not in _NOT_FILES]
    waiting = [place for place in open_ones if os.path.isdir(place) and not _is_below(place, own)]
    while waiting:
        folder = waiting.pop()
        for entry in _entries(folder):
            if entry.path in found or entry.path in own:
                continue
            if entry.stat(follow_symlinks=False).st_uid == uid:
                _remove(entry.path)
                if os.path.lexists(entry.path):
                    raise ManifestError(f"{entry.path} was left by the life before this one, and cannot be removed")
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def _is_below(place: str, folders: Iterable[str]) -> bool:
    return any(place == path or place.startswith(path + "/") for path in folders)


def _entries(folder: str) -> "List[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise ManifestError(f"{folder}: {error.strerror}") from error


def _attributes(path: str) -> Look:
    """A folder's access lists among them: they decide about files that are made in it later."""
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
        return tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)
    except OSError:
        return ()  # a file system without


def _opened(folder: str) -> int:
    """A descriptor of a folder, reached through folders only. Raises OSError: it is gone, or a link is on the way."""
    fd = os.open("/", _ON_THE_WAY)
    try:
        for part in folder.split("/"):
            if part:
                above, fd = fd, os.open(part, _ON_THE_WAY, dir_fd=fd)
                os.close(above)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    """One entry, with all below it; what cannot be removed stays."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            remove_tree(path)
        else:
            os.unlink(path)
    except OSError:
        return


def _hash(path: str, about: os.stat_result) -> str:
    """Of a file's content, up to its size as `about` has it; empty if it is another file by now."""
    digest, left = hashlib.sha256(), about.st_size
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb", buffering=0) as file:
        now = os.fstat(fd)
        if (now.st_dev, now.st_ino) != (about.st_dev, about.st_ino):
            return ""
        while left > 0:
            piece = file.read(min(left, _PIECE))
            if not piece:
                break
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()
