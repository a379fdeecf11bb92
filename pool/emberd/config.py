"""What emberd is told at its start, checked before anything runs."""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from emberpool.pool.emberd import gpu
from emberpool.pool.emberd.shape import as_list, as_object

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BadConfig(Exception):
    """The configuration cannot work; the text names the field."""


class Limits(NamedTuple):
    """What the jobs of one pod may use together (memory, pids) or each (files, time)."""

    memory_mb: int
    pids: int
    open_files: int
    file_mb: int
    time_limit_s: float
    disk_mb: int


class RoomSpec(NamedTuple):
    """How a room is made. All that the room's own processes know: no key, no socket, no state folder."""

    mode: str
    """`namespaces` or `plain`; `auto` until the zygote has found out which of them this pod can have."""
    binds: List[Tuple[str, str]]
    """Source and target of every read-only bind; empty with `overlay`."""
    overlay: Optional[str]
    """Folder that the root is an overlay of, or None."""
    scratch: str
    limits: Limits
    own_network: bool = False
    """Whether the room has a network of its own, with nothing in it but its loopback; else it shares the pod's."""
    job_uid: int = 0
    """User and group of jobs in plain mode; 0: emberd's own."""


class Image(NamedTuple):
    """A root that rooms may be made of."""

    binds: List[Tuple[str, str]]
    overlay: Optional[str]
    env: Dict[str, str]
    """What it adds to the base environment of every job."""


class Shape(NamedTuple):
    """What of the rooms to come can change in a pod's life."""

    image: str
    root: Image
    memory_mb: int


class TlsFiles(NamedTuple):
    """A certificate, with those between it and its authority, and its key, both in PEM."""

    cert: str
    key: str


class Config(NamedTuple):
    """The whole of it."""

    key: bytes
    pod: str
    uid: str
    listen: str
    state_dir: str
    room: RoomSpec
    env: Dict[str, str]
    """Base environment of every job."""
    warm_up: List[str]
    allow_host_root: bool
    image: str
    """Name of the image that `room` is made of; may be empty."""
    images: Dict[str, Image]
    """Images that a swap may pick, by name."""
    standby_mb: int
    """Memory limit until the pod is promoted; 0: it has its full share from the start."""
    gpus: List[str]
    """UUIDs of the devices that jobs may use."""
    nvml: str
    """The library that devices are asked through."""
    switch: str = ""
    """Unix socket of whoever passes frames on between the rooms of one gang; empty: gangs have no network here."""
    gpus_shared: bool = False
    """Whether other pods have the same devices, so that what is held on them says nothing of this pod's jobs."""
    scratch_tmpfs_mb: int = 0
    """MiB of a tmpfs that emberd mounts over the scratch folder; 0: what lies there already is good enough."""
    tls: Optional[TlsFiles] = None
    """What emberd shows whoever connects by https."""

    def first_shape(self) -> Shape:
        """Of the first room."""
        root = Image(self.room.binds, self.room.overlay, {})
        return Shape(self.image, root, self.standby_mb or self.room.limits.memory_mb)


def parse(text: bytes) -> Config:
    """Read the JSON of docs/emberd-protocol.md.

    Raises:
        BadConfig: it is no JSON, or a field is missing or wrong.
    """
    try:
        data = as_object(json.loads(text))
    except ValueError as error:
        raise BadConfig(f"standard input is no JSON: {error}") from error
    if data is None:
        raise BadConfig("standard input must be a JSON object")
    try:
        key = bytes.fromhex(_text(data, "key"))
    except ValueError as error:
        raise BadConfig("key: not hex") from error
    if len(key) != 32:
        raise BadConfig("key: must be 32 bytes in hex")
    room = as_object(data.get("room"))
    if room is None:
        raise BadConfig("room: must be an object")
    return Config(
        key=key,
        pod=_text(data, "pod"),
        uid=_text(data, "uid"),
        listen=_text(data, "listen"),
        state_dir=_text(data, "state_dir"),
        room=_room(room, _text(data, "scratch_dir"), _limits(as_object(data.get("limits")) or {})),
        env=_env(as_object(room.get("env")) or {}),
        warm_up=[str(part) for part in as_list(data.get("warm_up")) or []],
        allow_host_root=bool(data.get("test_allow_host_root", False)),
        image=str(room.get("image") or ""),
        images=_images(as_object(room.get("images")) or {}),
        standby_mb=_standby(data.get("standby")),
        gpus=_gpus(as_object(data.get("gpus")) or {}),
        nvml=str((as_object(data.get("gpus")) or {}).get("library") or gpu.LIBRARY),
        switch=_switch(room),
        gpus_shared=bool((as_object(data.get("gpus")) or {}).get("shared", False)),
        scratch_tmpfs_mb=_megabytes("scratch_tmpfs_mb", data.get("scratch_tmpfs_mb", 0), at_least=0),
        tls=_tls(data.get("tls"), _text(data, "listen")),
    )


def _tls(data: Any, listen: str) -> Optional[TlsFiles]:
    wanted = listen.startswith("https://")
    if wanted != (data is not None):
        raise BadConfig("tls: goes with a listen of https://host:port, and that with it")
    if not wanted:
        return None
    files = as_object(data) or {}
    for name in TlsFiles._fields:
        if not isinstance(files.get(name), str) or not files[name]:
            raise BadConfig(f"tls.{name}: must be the path of a file")
    return TlsFiles(files["cert"], files["key"])


def _text(data: Dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise BadConfig(f"{name}: must be a text that is not empty")
    return value


def _room(room: Dict[str, Any], scratch: str, limits: Limits) -> RoomSpec:
    mode, job_uid = room.get("mode"), _job_uid(room.get("job_uid"))
    if mode == "plain":
        return RoomSpec(mode, [], None, scratch, limits, job_uid=job_uid)
    if mode == "auto" and not job_uid:
        raise BadConfig("room.job_uid: must name the jobs' user with mode 'auto'")
    if mode not in ("namespaces", "auto"):
        raise BadConfig("room.mode: must be 'namespaces', 'plain' or 'auto'")
    binds, overlay = _root("room.root", room.get("root"))
    network = room.get("network", "pod")
    if network not in ("pod", "own"):
        raise BadConfig("room.network: must be 'pod' or 'own'")
    return RoomSpec(mode, binds, overlay, scratch, limits, network == "own", job_uid)


def _switch(room: Dict[str, Any]) -> str:
    switch = str(room.get("switch") or "")
    if switch and room.get("network") != "own":
        raise BadConfig("room.switch: needs rooms with a network of their own (room.network 'own')")
    return switch


def _job_uid(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise BadConfig("room.job_uid: must be the number of a user that is not root")
    return value


def _images(data: Dict[str, Any]) -> Dict[str, Image]:
    images: Dict[str, Image] = {}
    for name, value in data.items():
        about = as_object(value) or {}
        binds, overlay = _root(f"room.images.{name}", about.get("root"))
        images[name] = Image(binds, overlay, _checked_env(f"room.images.{name}", as_object(about.get("env")) or {}))
    return images


def _gpus(data: Dict[str, Any]) -> List[str]:
    variable = str(data.get("variable") or "")
    if variable:
        return _told_by(variable)
    uuids = [str(uuid) for uuid in as_list(data.get("uuids")) or []]
    if not all(uuid.isascii() and uuid and "," not in uuid for uuid in uuids):
        raise BadConfig("gpus.uuids: must be a list of device UUIDs")
    return uuids


def _told_by(variable: str) -> List[str]:
    """UUIDs as the node's device plugin puts them into the pod's environment."""
    uuids = [uuid for uuid in os.environ.get(variable, "").split(",") if uuid]
    if not uuids or {"all", "none", "void"} & set(uuids):
        raise BadConfig(
            f"gpus.variable: {variable} is {os.environ.get(variable, '')!r} and names no device of this pod: "
            "the device plugin must say which it gave out (deviceListStrategy envvar, deviceIDStrategy uuid)"
        )
    return uuids


def _standby(data: Any) -> int:
    if data is None:
        return 0
    return _megabytes("standby.memory_mb", (as_object(data) or {}).get("memory_mb"), at_least=1)


def _megabytes(field: str, value: Any, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise BadConfig(f"{field}: must be a number of MiB, {at_least} or more")
    return value


def _root(field: str, data: Any) -> Tuple[List[Tuple[str, str]], Optional[str]]:
    over = (as_object(data) or {}).get("overlay")
    if isinstance(over, str):
        return [], over
    root = as_list(data)
    if not root:
        raise BadConfig(f'{field}: must be a list of [source, target], or {{"overlay": folder}}')
    binds: List[Tuple[str, str]] = []
    for item in map(as_list, root):
        if item is None or len(item) != 2 or not all(str(part).startswith("/") for part in item):
            raise BadConfig(f"{field}: every bind must be a pair of absolute paths")
        binds.append((str(item[0]), str(item[1])))
    return binds, None


def _limits(data: Dict[str, Any]) -> Limits:
    try:
        limits = Limits(
            memory_mb=int(data.get("memory_mb", 1024)),
            pids=int(data.get("pids", 256)),
            open_files=int(data.get("open_files", 1024)),
            file_mb=int(data.get("file_mb", 1024)),
            time_limit_s=float(data.get("time_limit_s", 3600)),
            disk_mb=int(data.get("disk_mb", 10240)),
        )
    except (TypeError, ValueError) as error:
        raise BadConfig(f"limits: {error}") from error
    if min(limits) <= 0:
        raise BadConfig("limits: every one must be above 0")
    return limits


def _env(data: Dict[str, Any]) -> Dict[str, str]:
    return {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", **_checked_env("room.env", data)}


def _checked_env(field: str, data: Dict[str, Any]) -> Dict[str, str]:
    env: Dict[str, str] = {}
    for name, value in data.items():
        if not name or "=" in name or "\0" in name or "\0" in str(value):
            raise BadConfig(f"{field}: {name!r} cannot be an environment variable")
        env[name] = str(value)
    return env
