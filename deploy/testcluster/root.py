"""The pods' Debian: a minimal root with Python, made by debootstrap, as one reproducible layer of an image."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from testcluster.folders import Built
from testcluster.pins import KEYRING, MIRROR, ROOT_PACKAGES, SUITE

LEFT_OUT = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)
"""What no job needs: half of the files."""
EMPTIED = ("dev", "proc", "sys", "tmp", "run")
"""Folders that the container runtime mounts over."""


def build_root(where: Built) -> None:
    """Make `where.root_layer`.

    Raises:
        subprocess.CalledProcessError: debootstrap fails; its log is in the folder `root`.
    """
    root = where.folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    program = where.debian / "usr/sbin/debootstrap"
    argv = ["nice", "-n", "19", "sh", str(program), "--variant=minbase", f"--include={','.join(ROOT_PACKAGES)}"]
    argv += [f"--keyring={KEYRING}", SUITE, str(root), MIRROR]
    env = {**os.environ, "DEBOOTSTRAP_DIR": str(where.debian / "usr/share/debootstrap"), "LC_ALL": "C"}
    subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
    unfinished = where.root_layer.with_suffix(".partial")
    with tarfile.open(unfinished, "w") as layer:
        layer.add(root, arcname=".", filter=_kept)
    unfinished.rename(where.root_layer)
    shutil.rmtree(root)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = Path(member.name).as_posix().removeprefix("./")
    if any(path == folder or path.startswith(folder + "/") for folder in LEFT_OUT):
        return None
    if path.split("/")[0] in EMPTIED and "/" in path:
        return None
    member.mtime = 0
    return member
