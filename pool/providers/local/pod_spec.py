"""From a profile to what is launched and what emberd is told: pure functions, so that every choice can be read."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Isolation, Profile
from emberpool.pool.providers.local.bubblewrap import Bubblewrap, pod_options
from emberpool.pool.providers.local.launcher import Bind, LaunchSpec
from emberpool.pool.providers.local.root_view import (
    EMBERD_DIR,
    RUN_DIR,
    SCRATCH_DIR,
    SOCKET_NAME,
    STATE_DIR,
    HostTop,
    Interpreter,
    RootView,
    root_view,
)

LAUNCHED = b"launched"
"""First line on a pod's standard output: bubblewrap is through with its setup. See `pod_command`."""
SWITCH_NAME = "w"
"""Socket in a pod's run folder, by which its emberd connects a room to its gang."""
SOCKET_PATH_LIMIT = 107
"""Bytes that fit into sockaddr_un, without the closing NUL."""
CONFIG_LIMIT = 60_000
"""Bytes of emberd's configuration that a pipe takes in one go."""
BASE_IMAGE = "base"
STANDBY_MB = 16
"""Memory limit of jobs in a pod that stands by: the smallest that a profile may have; nobody runs anything in it."""
MOST_IMAGES = 32
"""Images bound into one pod: each costs its start a mount, and its configuration two hundred bytes."""


@dataclass(frozen=True)
class Host:
    """What every pod of this supervisor shares."""

    python: Interpreter
    top: HostTop
    emberd: Path
    """Folder of emberd's files."""
    etc: Path
    """Folder that pods see as /etc."""
    bwrap: Bubblewrap | None
    why_no_bwrap: str


@dataclass(frozen=True)
class PodFolders:
    """The folders of one pod on the host."""

    home: Path
    """Holds state and scratch."""
    run: Path
    """Holds emberd's socket. Apart from `home` and named after the UID, so that the socket's path is short."""

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def scratch(self) -> Path:
        return self.home / "scratch"

    @property
    def socket(self) -> Path:
        return self.run / SOCKET_NAME

    @property
    def switch(self) -> Path:
        return self.run / SWITCH_NAME

    def all(self) -> tuple[Path, ...]:
        """Every folder to make, outer before inner."""
        return (self.home, self.state, self.scratch, self.run)

    def binds(self) -> list[Bind]:
        """How the pod sees them."""
        pairs = ((self.run, RUN_DIR), (self.state, STATE_DIR), (self.scratch, SCRATCH_DIR))
        return [{"source": str(source), "target": target, "writable": True} for source, target in pairs]


@dataclass(frozen=True)
class PodChoice:
    """What one pod is started as, within its profile."""

    image: str
    """Name of its image."""
    root: str
    """Root folder of that image, or "" for the host's own."""
    images: Mapping[str, str]
    """See `swappable`."""
    standby: bool = False


def has_switch(profile: Profile) -> bool:
    """Whether rooms of its pods are connected to their gang by us: plain pods share the host's network anyway."""
    return profile.gang_peers and profile.isolation is not Isolation.PLAIN


def check_socket_path(path: Path, field: str) -> None:
    """Refuse a path that no unix socket can have.

    Raises:
        InvalidInput: it is too long; the text names the remedy.
    """
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_LIMIT:
        raise InvalidInput(
            field,
            f"socket {path} would have a path of {size} bytes, and a unix socket takes {SOCKET_PATH_LIMIT}: "
            "use a shorter folder, such as /var/lib/emberpool or one in /tmp",
        )


def image_root(profile: Profile, image: str) -> str:
    """Root folder of an image; empty for the host's own /usr.

    Raises:
        InvalidInput: the profile does not know the image, or cannot use one.
    """
    image = image or profile.base_image
    if image == BASE_IMAGE and BASE_IMAGE not in profile.images:
        return ""
    if image not in profile.images:
        known = ", ".join(sorted({BASE_IMAGE, *profile.images}))
        raise InvalidInput("image", f"profile {profile.name!r} has no image {image!r}; it has {known}")
    if profile.isolation is Isolation.PLAIN:
        raise InvalidInput("image", f"profile {profile.name!r} is plain, and only 'base' can be run without isolation")
    return profile.images[image]


def pod_command(python: Interpreter, emberd: str) -> list[str]:
    """What runs in the pod.

    bubblewrap asks for its death with its parent late in its setup. The shell's line says that this is done; only then
    is emberd told its configuration, without which it ends at once. So no moment to kill the supervisor leaves a pod.
    """
    script = f'echo {LAUNCHED.decode()}; exec "$@"'
    return ["/bin/sh", "-c", script, "sh", python.program, "-I", f"{emberd}/main.py"]


def swappable(profile: Profile, image: str) -> dict[str, str]:
    """Images that a pod started with `image` gets, name to root folder or "" for the host's own.

    Its own first, then those of the profile that this machine has, up to MOST_IMAGES; another one needs another pod.
    """
    if profile.isolation is Isolation.PLAIN:
        return {}
    names = dict.fromkeys((image or profile.base_image, BASE_IMAGE, *profile.images))
    roots = {name: image_root(profile, name) for name in names}
    return dict(list((name, root) for name, root in roots.items() if usable_image(root))[:MOST_IMAGES])


def usable_image(root: str) -> bool:
    """Whether a root folder can be a pod's image; "" is the host's own, which always can."""
    return not root or (os.path.isdir(root) and os.path.realpath(root) != "/")


def _pod_view(host: Host, choice: PodChoice) -> RootView:
    return root_view(host.top, host.python, str(host.emberd), str(host.etc), choice.root, choice.images)


def launch_spec(
    host: Host, profile: Profile, name: str, folders: PodFolders, uid: int, choice: PodChoice
) -> LaunchSpec:
    """What the launcher is told. `uid` -1 keeps our own.

    Raises:
        InvalidInput: the profile wants isolation, and this host has none to give.
    """
    if profile.isolation is Isolation.PLAIN:
        return _plain_spec(host, folders, uid)
    if host.bwrap is None:
        raise InvalidInput("isolation", host.why_no_bwrap)
    view = _pod_view(host, choice)
    return LaunchSpec(
        parent=os.getpid(),
        uid=uid,
        bwrap=host.bwrap.path,
        libraries=host.bwrap.libraries,
        options=pod_options(name, view.links),
        binds=[*view.binds, *folders.binds()],
        command=pod_command(host.python, EMBERD_DIR),
        env={"PATH": view.room_path},
    )


def _plain_spec(host: Host, folders: PodFolders, uid: int) -> LaunchSpec:
    needed = [str(host.emberd)] + ([] if host.python.in_usr else [host.python.prefix])
    read_only: list[Bind] = [{"source": path, "target": path, "writable": False} for path in needed]
    return LaunchSpec(
        parent=os.getpid(),
        uid=uid,
        bwrap="",
        libraries="",
        options=[],
        binds=[*read_only, *folders.binds()],
        command=pod_command(host.python, str(host.emberd)),
        env={"PATH": host.python.job_path},
    )


def emberd_config(
    host: Host, profile: Profile, name: str, uid: str, key: bytes, folders: PodFolders, choice: PodChoice
) -> bytes:
    """emberd's configuration, as docs/emberd-protocol.md has it; `uid` is the pod's UID.

    Raises:
        InvalidInput: it is too long to hand over, which only a long warm_up can make it.
    """
    plain = profile.isolation is Isolation.PLAIN
    view = _pod_view(host, choice)
    inside = {"run": str(folders.run), "state": str(folders.state), "scratch": str(folders.scratch)}
    if not plain:
        inside = {"run": RUN_DIR, "state": STATE_DIR, "scratch": SCRATCH_DIR}
    config: dict[str, object] = {
        "key": key.hex(),
        "pod": name,
        "uid": uid,
        "listen": f"unix:{inside['run']}/{SOCKET_NAME}",
        "state_dir": inside["state"],
        "scratch_dir": inside["scratch"],
        "room": {
            "mode": "plain" if plain else "namespaces",
            "root": [] if plain else view.room_root,
            "env": {"PATH": view.room_path, "LANG": "C.UTF-8"},
            **({"network": "own", "switch": f"{RUN_DIR}/{SWITCH_NAME}"} if has_switch(profile) else {}),
            "image": choice.image,
            "images": {
                image: {"root": about.room_root, "env": {"PATH": about.room_path}}
                for image, about in view.images.items()
            },
        },
        "limits": profile.limits.model_dump(),
        "warm_up": list(profile.warm_up),
        "standby": {"memory_mb": min(STANDBY_MB, profile.limits.memory_mb)} if choice.standby else None,
    }
    text = json.dumps(config).encode()
    if len(text) > CONFIG_LIMIT:
        raise InvalidInput("warm_up", f"emberd's configuration would be {len(text)} bytes, over {CONFIG_LIMIT}")
    return text
