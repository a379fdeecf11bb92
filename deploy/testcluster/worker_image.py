"""The image of workers, without a registry: the pods' Debian, and what this Python has installed of emberpool."""

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from testcluster.folders import Built
from testcluster.image import Archive, Image

WORKER_IMAGE = "emberpool.invalid/worker:1"
PACKAGES = "opt/emberpool/packages"
CHECKOUT = Path(__file__).resolve().parents[2]
POD_PYTHON = "3.11.2"
"""Version of Debian's Python, by which requirements are judged."""
ONLY_THERE = ("async-timeout==5.0.1",)
"""What that version needs beside what this one has installed."""
FOLDERS = ("activities", "pool", "worker", "workflows")
COMMAND = ("/usr/bin/python3", "-P", "-m", "emberpool.worker.cli", "worker")


def write_worker_image(where: Built, archive: Path) -> None:
    """Write its archive. This Python must be of the same minor version as the pods' Debian's, for compiled packages."""
    packages = _packages_layer(archive.with_suffix(".packages.tar"))
    images = Archive(archive)
    images.add(Image(WORKER_IMAGE, [where.root_layer, packages], COMMAND, (f"PYTHONPATH=/{PACKAGES}",)))
    images.close()
    packages.unlink()


def required(name: str) -> list[str]:
    """Distributions that one needs, itself first, without extras."""
    found: list[str] = []
    left = [name]
    while left:
        name = left.pop().lower().replace("_", "-")
        if name not in found and not any(one.startswith(f"{name}==") for one in ONLY_THERE):
            found.append(name)
            for text in distribution(name).requires or []:
                need = Requirement(text)
                if need.marker is None or need.marker.evaluate({"extra": "", "python_full_version": POD_PYTHON}):
                    left.append(need.name)
    return found


def _packages_layer(path: Path) -> Path:
    with tarfile.open(path, "w") as tar, tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *ONLY_THERE]
        subprocess.run(pip, check=True)
        tar.add(folder, arcname=PACKAGES, filter=_readable)
        for name in required("emberpool")[1:]:
            for file in distribution(name).files or []:
                place = Path(str(file.locate()))
                if ".." not in file.parts and place.is_file():
                    tar.add(place, arcname=f"{PACKAGES}/{file}", filter=_readable)
        tar.add(CHECKOUT / "src/emberpool/__init__.py", arcname=f"{PACKAGES}/emberpool/__init__.py", filter=_readable)
        for name in FOLDERS:
            tar.add(CHECKOUT / name, arcname=f"{PACKAGES}/emberpool/{name}", filter=_readable)
    return path


def _readable(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """By every user. Times stay: compiled files are checked against them."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
