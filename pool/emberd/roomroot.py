"""The file tree of a room: read-only image, a few writable folders from its own upper layer, fresh /proc and /dev."""

import os
from typing import List, NamedTuple, Set

from emberpool.pool.emberd import kernel
from emberpool.pool.emberd.config import RoomSpec

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_WRITABLE = (("work", "/work", 0o755), ("tmp", "/tmp", 0o1777), ("home", "/home/job", 0o755))
LAYERS_IN_ROOM = "/layers"
"""Where jobs see what `layers_folder` holds, read-only."""
_FLAGS = (
    (os.ST_NOSUID, kernel.MS_NOSUID),
    (os.ST_NODEV, kernel.MS_NODEV),
    (os.ST_NOEXEC, kernel.MS_NOEXEC),
    (os.ST_NOATIME, kernel.MS_NOATIME),
    (os.ST_NODIRATIME, kernel.MS_NODIRATIME),
    (os.ST_RELATIME, kernel.MS_RELATIME),
)


class Home(NamedTuple):
    """Where jobs live, as they see it."""

    work: str
    home: str
    tmp: str


def layers_folder(scratch: str) -> str:
    """Folder of a pod's layers, one for all its rooms: what is added is seen in rooms that exist already."""
    return os.path.join(scratch, "layers", "ready")


def plain(scratch: str, uid: int = 0) -> Home:
    """Fresh folders in `scratch`, no namespaces. `uid`: whose they are, if not ours."""
    for name, _, mode in _WRITABLE:
        _folder(os.path.join(scratch, name), mode)
        if uid:
            os.chown(os.path.join(scratch, name), uid, uid)
    return Home(*(os.path.join(scratch, name) for name in ("work", "home", "tmp")))


def why_no_rooms(scratch: str) -> str:
    """Try what a room is made of, in a process that ends after it: why it cannot be done here; empty if it can.

    The caller has no threads.
    """
    readable, writable = os.pipe()
    try:
        pid = kernel.fork_into(kernel.CLONE_NEWPID)
    except OSError as error:
        os.close(readable)
        os.close(writable)
        return str(error)
    if pid == 0:
        try:
            os.write(writable, _tried(scratch).encode("utf-8", "replace")[:500])
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writable)
    with os.fdopen(readable, "rb") as said:
        why = said.read().decode("utf-8", "replace")
    return why if os.waitpid(pid, 0)[1] == 0 else why or "the try ended early"


def _tried(scratch: str) -> str:
    try:
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("tmpfs", scratch, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
        os.mkdir(scratch + "/proc")
        kernel.mount("proc", scratch + "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    except OSError as error:
        return str(error)
    return ""


def mounted() -> List[str]:
    """Every mount of this process, as far as it does not name a room: place, options, kind."""
    found: List[str] = []
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            fields, _, rest = line.partition(" - ")
            found.append(" ".join([*fields.split()[4:6], rest.split()[0]]))
    return found


def build(folder: str, spec: RoomSpec) -> None:
    """Build the root in `folder` and enter it; the caller is alone in a new mount and PID namespace."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    root, upper = os.path.join(folder, "root"), os.path.join(folder, "upper")
    _folder(root, 0o755)
    _folder(upper, 0o755)
    if spec.overlay is not None:
        image = spec.overlay.rstrip("/")
        mounts = _mounts_below(image)
        _overlay(root, upper, os.path.join(folder, "overlay"), spec.overlay)
        _cover(root, [place[len(image) :] for place in mounts if place != image])
    else:
        _binds(root, spec)
        for name, target, mode in _WRITABLE:
            _folder(os.path.join(upper, name), mode)
            os.makedirs(root + target, exist_ok=True)
            kernel.mount(os.path.join(upper, name), root + target, None, kernel.MS_BIND)
    _layers(root, spec)
    _devices(root, spec)
    os.makedirs(root + "/proc", exist_ok=True)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", root + "/proc", "proc", flags)
    # A job is root of the room's own namespaces: their settings would be its to change.
    settings = root + "/proc/sys"
    kernel.mount(settings, settings, None, kernel.MS_BIND)
    kernel.mount(None, settings, None, kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | flags)
    if spec.overlay is None:
        kept = {root + target for _, target, _ in _WRITABLE} | {root + "/proc", root + "/dev/shm"}
        _read_only(root, kept)
    kernel.enter_root(root)


def _overlay(root: str, upper: str, work: str, image: str) -> None:
    _folder(work, 0o755)
    for _, target, mode in _WRITABLE:
        # In the layer itself, before the mount: the image's own /tmp or /home may belong to a user that this
        # namespace does not know, and a folder of such a user cannot be copied up.
        _folder(upper + target, mode)
    _folder(upper + LAYERS_IN_ROOM, 0o755)
    options = f"lowerdir={_escaped(image)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
    try:
        kernel.mount("overlay", root, "overlay", 0, options + ",userxattr")
    except OSError:
        # Kernels before 5.11 and privileged mounts know no userxattr.
        kernel.mount("overlay", root, "overlay", 0, options)


def _cover(root: str, places: List[str]) -> None:
    """Show nothing of what is mounted in the pod, emberd's key and state among it. Linux leaves mounts out of an
    overlay; in gVisor they are part of the tree that its root is made of."""
    for place in sorted(places):
        if place.split("/")[1] not in ("", "proc", "dev") and os.path.isdir(root + place) and os.listdir(root + place):
            flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC | kernel.MS_RDONLY
            kernel.mount("tmpfs", root + place, "tmpfs", flags, "size=4k,mode=755")


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _binds(root: str, spec: RoomSpec) -> None:
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4m,mode=755")
    for source, target in spec.binds:
        place = root + target
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.islink(source):
            os.symlink(os.readlink(source), place)  # as in /bin -> usr/bin
            continue
        if os.path.isdir(source):
            os.makedirs(place, exist_ok=True)
        else:
            _file(place)
        kernel.mount(source, place, None, kernel.MS_BIND | kernel.MS_REC)


def _layers(root: str, spec: RoomSpec) -> None:
    place, flags = root + LAYERS_IN_ROOM, kernel.MS_NOSUID | kernel.MS_NODEV
    os.makedirs(place, exist_ok=True)
    kernel.mount(layers_folder(spec.scratch), place, None, kernel.MS_BIND)
    # Jobs have no capability to undo it, so that none can change what the caller's next job gets.
    have = sum(flag for seen, flag in _FLAGS if os.statvfs(place).f_flag & seen)
    kernel.mount(None, place, None, kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | flags | have)


def _devices(root: str, spec: RoomSpec) -> None:
    dev = root + "/dev"
    os.makedirs(dev, exist_ok=True)
    kernel.mount("tmpfs", dev, "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "size=1m,mode=755")
    for name in _DEVICES:
        if os.path.exists(f"/dev/{name}"):
            _file(f"{dev}/{name}")
            kernel.mount(f"/dev/{name}", f"{dev}/{name}", None, kernel.MS_BIND)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{dev}/{name}")
    os.mkdir(dev + "/shm")
    size = max(1, spec.limits.memory_mb // 4)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", dev + "/shm", "tmpfs", flags, f"size={size}m,mode=1777")
    os.mkdir(dev + "/mqueue")
    try:  # so that queues can be seen, by jobs and by the attestation
        kernel.mount("mqueue", dev + "/mqueue", "mqueue", flags | kernel.MS_NOEXEC)
    except OSError:
        os.rmdir(dev + "/mqueue")  # a kernel without


def _read_only(root: str, kept: Set[str]) -> None:
    for place in _mounts_below(root):
        if place in kept or place.startswith(root + "/dev/"):
            continue
        # Flags that a namespace above has locked must be named again, or the kernel refuses.
        have = os.statvfs(place).f_flag
        flags = sum(flag for seen, flag in _FLAGS if have & seen)
        kernel.mount(None, place, None, kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | flags)


def _mounts_below(root: str) -> List[str]:
    with open("/proc/self/mountinfo", "rb") as lines:
        places = [line.split()[4] for line in lines]
    decoded = [os.fsdecode(place.decode("unicode_escape").encode("latin-1")) for place in places]
    return [place for place in decoded if place == root or place.startswith(root + "/")]


def _folder(path: str, mode: int) -> None:
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)


def _file(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
