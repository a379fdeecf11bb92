"""Images without a registry: OCI archives written here, imported into containerd."""

import compileall
import hashlib
import io
import json
import py_compile
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testcluster.folders import Built

PAUSE_IMAGE = "emberpool.invalid/pause:1"
POD_IMAGES = ("emberpool.invalid/python:1", "emberpool.invalid/python:2")
"""Two that differ in /etc/image-mark, which holds the image's name."""
EMBERD = "opt/emberpool/emberd"
EMBERD_SOURCE = Path(__file__).resolve().parents[2] / "pool" / "emberd"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """One image: its name, its layers from the bottom up, and what it runs."""

    name: str
    layers: Sequence[Path]
    command: Sequence[str]
    env: Sequence[str] = ()


class Archive:
    """An OCI archive that is being written; blobs that images share are in it once."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w")
        self._blobs: dict[str, int] = {}
        self._manifests: list[dict[str, object]] = []

    def add(self, image: Image) -> None:
        """Add an image."""
        layers = [self._add_file(path) for path in image.layers]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(image.command), "Env": [PATH, *image.env]},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self._add_json("application/vnd.oci.image.config.v1+json", config),
            "layers": layers,
        }
        entry = self._add_json("application/vnd.oci.image.manifest.v1+json", manifest)
        self._manifests.append({**entry, "annotations": {"io.containerd.image.name": image.name}})

    def close(self) -> None:
        """Write the index: the archive is whole."""
        self._write("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        self._write("index.json", json.dumps({"schemaVersion": 2, "manifests": self._manifests}).encode())
        self._tar.close()

    def _add_file(self, path: Path) -> dict[str, object]:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest not in self._blobs:
                file.seek(0)
                member = tarfile.TarInfo(f"blobs/sha256/{digest}")
                member.size = self._blobs[digest] = path.stat().st_size
                self._tar.addfile(member, file)
        kind = "application/vnd.oci.image.layer.v1.tar"
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": self._blobs[digest]}

    def _add_json(self, kind: str, value: Mapping[str, object]) -> dict[str, object]:
        data = json.dumps(value).encode()
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._blobs:
            self._blobs[digest] = len(data)
            self._write(f"blobs/sha256/{digest}", data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def _write(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        self._tar.addfile(member, io.BytesIO(data))


def write_images(where: Built, archive: Path) -> None:
    """Write the archive of every image that the cluster has; emberd comes from this checkout."""
    command = ["/usr/bin/python3", "-I", f"/{EMBERD}/main.py"]
    with tempfile.TemporaryDirectory() as folder:
        emberd = emberd_layer(Path(folder) / "emberd.tar")
        pause = layer(Path(folder) / "pause.tar", {"pause": Path(where.program("pause")).read_bytes()}, 0o755)
        images = Archive(archive)
        images.add(Image(PAUSE_IMAGE, [pause], ["/pause"]))
        for name in POD_IMAGES:
            mark = layer(Path(folder) / f"{name[-1]}.tar", {"etc/image-mark": f"{name}\n".encode()})
            images.add(Image(name, [where.root_layer, emberd, mark], command))
        images.close()


def layer(path: Path, files: Mapping[str, bytes], mode: int = 0o644) -> Path:
    """Write a layer of a few files."""
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
    return path


def emberd_layer(path: Path) -> Path:
    """emberd as a layer, compiled: a pod that compiles it anew is ready a fifth of a second later."""
    folder = path.with_suffix("")
    shutil.copytree(EMBERD_SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, ddir=f"/{EMBERD}", invalidation_mode=mode)
    with tarfile.open(path, "w") as tar:
        tar.add(folder, arcname=EMBERD, filter=_owned_by_root)
    return path


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member
