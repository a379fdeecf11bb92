"""What a machine must have and allow so that the cluster can run on it: looked for, or tried, in about a second.

A container often is root and still may make no mount, cgroup or bridge. Whoever starts the cluster there hears which of
these it is before anything is built.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testcluster.folders import run_folder

TOOLS = {
    "go": "",
    "gcc": "gcc libc6-dev",
    "pkg-config": "pkg-config",
    "openssl": "openssl",
    "ip": "iproute2",
    "wget": "wget",
    "unshare": "util-linux",
    "mount": "mount",
    "apt-get": "",
    "dpkg-deb": "",
}
"""Programs that building and starting call, and the Debian packages that have them; "" where none does."""
OLDEST_KERNEL = (6, 3)
"""From there on tmpfs takes id-mapped mounts, without which no pod has a user namespace."""
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices")
UNIFIED_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
KERNEL_SETTINGS = ("vm/overcommit_memory", "kernel/panic", "net/ipv4/ip_forward")
"""The kubelet and the bridge plugin write these."""
NETFILTER = 12
"""Number of nftables' netlink family; Python has no name for it."""
SPACE_GB = 4
"""Free disk below the run folder: images, their snapshots, etcd, logs."""
PROBE = "emberprobe0"


@dataclass(frozen=True)
class Right:
    """One thing that the kernel, or whoever set this machine up, must allow."""

    name: str
    trouble: Callable[[], str]
    """"" if it is allowed; else what was said."""


def missing_tools() -> str:
    """Why nothing can be built here, and what to do about it; "" if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the test cluster needs Linux on x86_64, this is {sys.platform} on {platform.machine()}"
    if os.geteuid() != 0:
        return "the test cluster needs root"
    lacking = _lacking()
    if not lacking:
        return ""
    packages = " ".join(TOOLS[name] for name in lacking if TOOLS[name])
    remedies = [f"apt-get install -y {packages}"] if packages else []
    remedies += ["Go 1.24 or newer from https://go.dev/dl"] if "go" in lacking else []
    return f"the test cluster needs {', '.join(lacking)}: {'; '.join(remedies) or 'it is for Debian'}"


def install_tools() -> None:
    """Install the Debian packages of the programs that are not here.

    Raises:
        subprocess.CalledProcessError: apt-get fails; it has said why.
    """
    packages = [word for name in _lacking() for word in TOOLS[name].split()]
    if packages and os.geteuid() == 0:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            subprocess.run(["apt-get", "--quiet", *words], check=True, env=env)


def _lacking() -> list[str]:
    return [name for name in TOOLS if shutil.which(name) is None]


def lacking_rights() -> list[str]:
    """What is not allowed here and the cluster cannot do without, each with what was said; root only."""
    said = [(right.name, right.trouble()) for right in RIGHTS]
    return [f"{name}: {trouble}" for name, trouble in said if trouble]


def description() -> str:
    """The machine in a line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    version = "2" if _unified() else "1"
    go = _said("go", "version") if shutil.which("go") else "no Go"
    return f"{platform.release()}, cgroup v{version}, {os.cpu_count()} cores, {memory:.0f} GiB, {go.strip()}"


def _kernel() -> str:
    numbers = platform.release().split("-")[0].split(".")
    return "" if (int(numbers[0]), int(numbers[1])) >= OLDEST_KERNEL else f"this is {platform.release()}"


def _mounts() -> str:
    return _trouble("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")


def _overlays() -> str:
    """On the disk that the snapshots will be on: an overlay does not take another one as its upper layer."""
    script = "cd $0 && mkdir l u w m && mount -t overlay none -o lowerdir=l,upperdir=u,workdir=w m && echo > m/file"
    with tempfile.TemporaryDirectory(dir=_disk(), prefix="emberprobe-") as folder:
        return _trouble("unshare", "--mount", "sh", "-c", script, folder)


def _user_namespaces() -> str:
    return _trouble("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "true")


def _network() -> str:
    """Namespaces, and in ours a bridge, which is gone again at once."""
    trouble = _trouble("unshare", "--net", "ip", "link", "add", PROBE, "type", "veth", "peer", "name", "emberprobe1")
    return trouble or _trouble("sh", "-c", f"ip link add {PROBE} type bridge && ip link del {PROBE}")


def _cgroups() -> str:
    """A group of our own in every hierarchy that the kubelet wants."""
    places = [CGROUPS] if _unified() else [CGROUPS / name for name in CONTROLLERS]
    if _unified():
        there = (CGROUPS / "cgroup.controllers").read_text().split()
        if absent := [name for name in UNIFIED_CONTROLLERS if name not in there]:
            return f"no controller {', '.join(absent)} in {CGROUPS}"
    for place in places:
        group = place / f"emberprobe-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
            group.rmdir()
        except OSError as error:
            return f"{place}: {error.strerror}"
    return ""


def _settings() -> str:
    """Opened, not changed."""
    paths = [f"/proc/sys/{name}" for name in KERNEL_SETTINGS]
    return next((trouble for path in paths if (trouble := _opened(path, os.O_WRONLY))), "")


def _kernel_log() -> str:
    """The kubelet looks for processes that were killed for their memory there, and ends where it cannot."""
    return _opened("/dev/kmsg", os.O_RDONLY)


def _nftables() -> str:
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER).close()
    except OSError as error:
        return str(error.strerror)
    return ""


def _space() -> str:
    free = shutil.disk_usage(_disk()).free / 1e9
    return "" if free >= SPACE_GB else f"{free:.1f} GB at {_disk()}"


RIGHTS = (
    Right(f"Linux {OLDEST_KERNEL[0]}.{OLDEST_KERNEL[1]} or newer", _kernel),
    Right("mounts", _mounts),
    Right("overlay mounts", _overlays),
    Right("user namespaces", _user_namespaces),
    Right("network namespaces and bridges", _network),
    Right("control groups", _cgroups),
    Right("kernel settings in /proc/sys", _settings),
    Right("the kernel's log", _kernel_log),
    Right("nftables", _nftables),
    Right(f"{SPACE_GB} GB of disk", _space),
)


def _unified() -> bool:
    return (CGROUPS / "cgroup.controllers").exists()


def _disk() -> Path:
    """Where the run folder is or will be."""
    return next(path for path in run_folder().parents if path.is_dir())


def _opened(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _trouble(*argv: str) -> str:
    """Why a command fails; "" if it does not."""
    done = subprocess.run(argv, capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1] if done.returncode else ""


def _said(*argv: str) -> str:
    with suppress(OSError):
        return subprocess.run(argv, capture_output=True, text=True).stdout
    return ""
