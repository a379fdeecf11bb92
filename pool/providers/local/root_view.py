"""What a pod sees of its host: a pure function from facts about the host to binds and links.

Nothing of the host is writable in it, and nothing is there but /usr, a minimal /etc, emberd, the Python that runs it,
and the pod's own folders.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from emberpool.pool.providers.local.launcher import Bind

EMBER = "/ember"
EMBERD_DIR = f"{EMBER}/emberd"
IMAGES_DIR = f"{EMBER}/images"
RUN_DIR, STATE_DIR, SCRATCH_DIR = f"{EMBER}/run", f"{EMBER}/state", f"{EMBER}/scratch"
SOCKET_NAME = "s"
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
TOP_LEVEL = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs emberd, and a job's `python3` if the image has no other."""

    program: str
    """Absolute path, the same on the host and in the pod."""
    prefix: str
    """Folder that holds it; it is bound at the same path unless it lies in /usr."""

    @property
    def in_usr(self) -> bool:
        """Whether the host's /usr already brings it."""
        return PurePosixPath(self.prefix).is_relative_to("/usr")

    @property
    def job_path(self) -> str:
        """A job's PATH: the system's, then this Python's programs, so that `python3` always exists."""
        extra = f"{self.prefix}/bin"
        return ":".join(SYSTEM_PATH if extra in SYSTEM_PATH else (*SYSTEM_PATH, extra))


@dataclass(frozen=True)
class HostTop:
    """How the host lays out its top level: usr-merged hosts have links, others folders."""

    links: Mapping[str, str]
    """Link to its text, as in `/bin` to `usr/bin`."""
    folders: tuple[str, ...]


@dataclass(frozen=True)
class RootView:
    """The pod's root, and the room's within it."""

    binds: tuple[Bind, ...]
    links: Mapping[str, str]
    room_root: list[list[str]] | dict[str, str]
    """emberd's `room.root`: binds for the host's own root, an overlay for an image's."""
    room_path: str
    images: Mapping[str, "ImageView"]
    """Every image that this pod can be given, the host's own root ("" in `root_view`) among them, by name."""


@dataclass(frozen=True)
class ImageView:
    """One image as rooms are made of it."""

    room_root: list[list[str]] | dict[str, str]
    room_path: str


def this_interpreter() -> Interpreter:
    """The Python of this process, seen through virtual environments to the installation below them."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Interpreter(program=f"{sys.base_prefix}/bin/{name}", prefix=sys.base_prefix)


def read_host_top(root: Path = Path("/")) -> HostTop:
    """Look at the host's top level."""
    paths = [(name, root / name.lstrip("/")) for name in TOP_LEVEL]
    return HostTop(
        links={name: os.readlink(path) for name, path in paths if path.is_symlink()},
        folders=tuple(name for name, path in paths if path.is_dir() and not path.is_symlink()),
    )


def _read_only(source: str, target: str) -> Bind:
    return {"source": source, "target": target, "writable": False}


def root_view(
    host: HostTop, python: Interpreter, emberd: str, etc: str, image: str = "", images: Mapping[str, str] | None = None
) -> RootView:
    """What a pod sees, before its own folders are added.

    `etc` is the folder that becomes /etc; `image` the root folder of its image, or "" for the host's own /usr; `images`
    what a swap may pick, name to root folder or "": bound from the start, since nothing is mounted into a running pod.
    """
    binds = [_read_only("/usr", "/usr"), _read_only(etc, "/etc"), _read_only(emberd, EMBERD_DIR)]
    binds += [_read_only(folder, folder) for folder in host.folders]
    if not python.in_usr:
        binds.append(_read_only(python.prefix, python.prefix))
    folders = list(dict.fromkeys(folder for folder in (image, *(images or {}).values()) if folder))
    places = {folder: f"{IMAGES_DIR}/{number}" for number, folder in enumerate(folders)}
    binds += [Bind(source=folder, target=place, writable=False, mapped=True) for folder, place in places.items()]
    # In the room a link's name is bound like a folder: the source is resolved in the pod's root.
    seen = ["/usr", "/etc", *host.folders, *host.links] + ([] if python.in_usr else [python.prefix])

    def view(folder: str) -> ImageView:
        if folder:
            return ImageView({"overlay": places[folder]}, ":".join(SYSTEM_PATH))
        return ImageView([[path, path] for path in seen], python.job_path)

    own = view(image)
    others = {name: view(folder) for name, folder in (images or {}).items()}
    return RootView(tuple(binds), host.links, own.room_root, own.room_path, others)
