"""The first process of a local pod: it gives up root, then becomes bubblewrap (or emberd itself, in plain mode).

Run as a script, `python -I -S launcher.py SPEC`, by the supervisor only; standard library only, so that it starts in
milliseconds and needs nothing that a pod's user could not read. SPEC is JSON, a `LaunchSpec`. Standard input passes
through untouched: it carries emberd's configuration, and with it the pod's key.

Started by root, the pod's user cannot walk into a 0700 home, where Python, emberd or the pod's folder may lie. So every
source is opened while still root, and bound to a place that the user can reach, in a mount namespace that nobody else
sees. Only after that are groups, gid and uid given up.
"""

import ctypes
import json
import os
import signal
import struct
import sys
from typing import NoReturn, NotRequired, TypedDict

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV = 2, 4
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
"""The same on every architecture: they came after the numbers were unified."""
AT_EMPTY_PATH, OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 0x1000, 1, os.O_CLOEXEC
MOUNT_ATTR_IDMAP = 0x00100000
MOVE_MOUNT_F_EMPTY_PATH = 4
AT_FDCWD = -100

STAGE = "/tmp"
"""Covered by a tmpfs of the launcher's own mount namespace; exists on every host."""
SPAWN_FAILED = 120
"""Exit status for a launch that never reached bubblewrap or emberd."""


class Bind(TypedDict):
    """One path of the host and where it is seen."""

    source: str
    target: str
    writable: bool
    mapped: NotRequired[bool]
    """Whether what belongs to host root shall belong to the pod's user, as an image's files must."""


class LaunchSpec(TypedDict):
    """All that the launcher needs; nothing in it is secret, since argv is readable by everybody."""

    parent: int
    """Pid of the supervisor: if it is not the parent any more, the launcher ends."""
    uid: int
    """Host uid and gid to run under, or -1 to stay."""
    bwrap: str
    """Path of bubblewrap; empty in plain mode."""
    libraries: str
    """Folder of the libraries that a bundled bubblewrap needs; empty if none."""
    options: list[str]
    """bubblewrap's options, without the binds."""
    binds: list[Bind]
    command: list[str]
    env: dict[str, str]
    """Environment of the command; bubblewrap itself gets none of it."""


class _Libc:
    """The system calls that Python 3.11 does not offer."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _check(self, result: int, what: str) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    def unshare_mounts(self) -> None:
        self._check(self._libc.unshare(CLONE_NEWNS), "unshare")

    def mount(self, source: str, target: str, kind: str, flags: int, data: str = "") -> None:
        words = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
        self._check(self._libc.mount(*words), f"mount on {target}")

    def unshare_users(self) -> None:
        self._check(self._libc.unshare(CLONE_NEWUSER), "unshare")

    def mount_mapped(self, handle: int, target: str, users: int) -> None:
        """Bind what `handle` names on `target`, its owners seen through the user namespace `users`."""
        tree = self._libc.syscall(SYS_OPEN_TREE, handle, b"", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
        self._check(min(tree, 0), "open_tree")
        try:
            attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, users)
            changed = self._libc.syscall(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes))
            self._check(changed, "mount_setattr")
            moved = self._libc.syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH)
            self._check(moved, "move_mount")
        finally:
            os.close(tree)

    def die_with_parent(self) -> None:
        self._check(self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def _bind(libc: _Libc, handle: int, target: str) -> None:
    """Bind what `handle` (O_PATH) names on `target`, which is made: a folder or a file, like the source."""
    source = f"/proc/self/fd/{handle}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    libc.mount(source, target, "", MS_BIND | MS_REC)


def _own_mounts(libc: _Libc) -> None:
    libc.unshare_mounts()
    libc.mount("none", "/", "", MS_REC | MS_PRIVATE)


def _users_with_root_as(libc: _Libc, uid: int) -> int:
    """A user namespace in which root is host `uid`, as a descriptor; a child makes it, and ends."""
    ready_read, ready_write = os.pipe()
    done_read, done_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            libc.unshare_users()
            os.write(ready_write, b"1")
            os.close(done_write)
            os.read(done_read, 1)
        finally:
            os._exit(0)
    os.close(ready_write)
    os.close(done_read)
    try:
        if not os.read(ready_read, 1):
            raise OSError("no user namespace can be made")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"0 {uid} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_read)
        os.close(done_write)
        os.waitpid(child, 0)


def _bind_mapped(libc: _Libc, handle: int, target: str, uid: int) -> None:
    """Like `_bind`, with root's files as `uid`'s.

    A kernel or file system that cannot gets a usual bind: jobs then change nothing that the image brings, and read only
    what others may.
    """
    os.makedirs(target, exist_ok=True)
    try:
        users = _users_with_root_as(libc, uid)
        try:
            libc.mount_mapped(handle, target, users)
        finally:
            os.close(users)
    except OSError as error:
        print(f"emberpool: the image's files keep their owner: {error}", file=sys.stderr, flush=True)
        _bind(libc, handle, target)


def stage(libc: _Libc, spec: LaunchSpec) -> LaunchSpec:
    """Bring every source to a place of its own below `STAGE`, and return the spec that names those places.

    Raises:
        OSError: a source does not exist, or mounting is refused.
    """
    _own_mounts(libc)
    sources = [bind["source"] for bind in spec["binds"]] + [spec["bwrap"], spec["libraries"]]
    handles = {source: os.open(source, os.O_PATH | os.O_CLOEXEC) for source in sources if source}
    libc.mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    places = {"": ""}
    mapped = {bind["source"] for bind in spec["binds"] if bind.get("mapped")}
    for number, (source, handle) in enumerate(handles.items()):
        places[source] = f"{STAGE}/{number}"
        if source in mapped:
            _bind_mapped(libc, handle, places[source], spec["uid"])
        else:
            _bind(libc, handle, places[source])
        os.close(handle)
    binds: list[Bind] = [{**bind, "source": places[bind["source"]]} for bind in spec["binds"]]
    return {**spec, "binds": binds, "bwrap": places[spec["bwrap"]], "libraries": places[spec["libraries"]]}


def closed_ancestor(path: str) -> str:
    """The topmost folder above `path` that others cannot walk into; empty if there is none."""
    parts = path.split("/")[1:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:depth])
        if not os.stat(folder).st_mode & 0o001:
            return folder
    return ""


def open_the_way(libc: _Libc, paths: list[str]) -> None:
    """Plain mode: make `paths` reachable where they are.

    A closed folder above one is covered, for this pod alone, by an empty tmpfs with just those paths in it; so the rest
    of a home stays out of sight.

    Raises:
        OSError: a path does not exist, or mounting is refused.
    """
    covers = {path: closed_ancestor(path) for path in paths}
    hidden = {path: cover for path, cover in covers.items() if cover}
    if not hidden:
        return
    try:
        _own_mounts(libc)
    except PermissionError:
        covers_text = ", ".join(sorted(set(hidden.values())))
        raise PermissionError(
            f"root may not mount here, so that the pod's user cannot be let into {covers_text}: "
            "run emberpool as an ordinary user, or let others walk through (chmod o+x)"
        ) from None
    handles = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in hidden}
    for cover in sorted(set(hidden.values())):
        libc.mount("tmpfs", cover, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for path, handle in handles.items():
        _bind(libc, handle, path)
        os.close(handle)


def become(uid: int) -> None:
    """Give up root for good: no group but its own, real, effective and saved ids alike."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def bwrap_argv(spec: LaunchSpec) -> list[str]:
    """bubblewrap's whole command line. It mounts in order: the options' /tmp, then binds, deep after shallow."""
    argv = [spec["bwrap"], "--clearenv", *spec["options"]]
    for name, value in spec["env"].items():
        argv += ["--setenv", name, value]
    for bind in sorted(spec["binds"], key=lambda item: item["target"]):
        argv += ["--bind" if bind["writable"] else "--ro-bind", bind["source"], bind["target"]]
    return [*argv, "--", *spec["command"]]


def launch(spec: LaunchSpec) -> NoReturn:
    """Become the pod's process.

    Raises:
        OSError: whatever the kernel refused on the way.
    """
    libc = _Libc()
    # The supervisor's own umask is for its secrets; folders made here are for the pod's user to walk through.
    os.umask(0o022)
    plain = not spec["bwrap"]
    if spec["uid"] >= 0:
        if plain:
            open_the_way(libc, [bind["source"] for bind in spec["binds"]])
        else:
            spec = stage(libc, spec)
        become(spec["uid"])
    # Only now: a change of uid clears it. And the parent may have died before it took effect.
    libc.die_with_parent()
    if os.getppid() != spec["parent"]:
        raise OSError("the supervisor is gone")
    if plain:
        os.execve(spec["command"][0], spec["command"], spec["env"])
    os.execve(spec["bwrap"], bwrap_argv(spec), {"LD_LIBRARY_PATH": spec["libraries"]} if spec["libraries"] else {})


def main() -> None:
    try:
        launch(json.loads(sys.argv[1]))
    except OSError as error:
        # Not sys.exit: its status must be told apart from emberd's own.
        print(f"emberpool: the pod cannot be launched: {error}", file=sys.stderr, flush=True)
        os._exit(SPAWN_FAILED)


if __name__ == "__main__":
    main()
