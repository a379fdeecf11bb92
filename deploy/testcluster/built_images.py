"""The images of deploy/images as their Dockerfiles have them, built by buildah without a registry.

What the Dockerfiles start from is made here of the pods' Debian, and goes by the names that they ask for.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from testcluster.folders import Built

TOP = Path(__file__).resolve().parents[2]
PYTHON_BASE = "docker.io/library/python:3.12-slim"
"""Debian with Debian's Python stands for it."""
CUDA_BASE = "docker.io/nvidia/cuda:12.6.3-runtime-ubuntu24.04"
"""Debian without Python, whose environment asks for all GPUs as NVIDIA's images do, stands for it."""
NO_SHELL_BASE = "docker.io/library/no-shell:1"
"""Debian's Python without a shell stands for the bases that are called distroless."""
_PYTHON = """\
FROM scratch
ADD root.tar /
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv python-is-python3 ca-certificates
COPY authorities.crt /etc/ssl/certs/ca-certificates.crt
RUN printf '[global]\\ncert = /etc/ssl/certs/ca-certificates.crt\\n' >/etc/pip.conf
"""
"""The authorities are this machine's: it may reach package indexes through a proxy with one of its own."""
_CUDA = """\
FROM scratch
ADD root.tar /
RUN apt-get purge -qq -y --auto-remove 'python3.*' 'libpython3.*'
ENV NVIDIA_VISIBLE_DEVICES=all
"""
_NO_SHELL = """\
FROM scratch
ADD root.tar /
RUN ["rm", "/bin/sh", "/bin/bash", "/bin/dash"]
"""
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


class NoBuilder(Exception):
    """buildah is not here; the text says how to get it."""


class Builder:
    """Builds and keeps images in one folder, which the caller removes."""

    def __init__(self, folder: Path) -> None:
        """Raises NoBuilder."""
        if shutil.which("buildah") is None:
            raise NoBuilder("building images takes buildah: apt-get install -y --no-install-recommends buildah")
        self._folder = folder
        # vfs copies every layer, and works on whatever the folder lies on.
        self._words = ["buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self._words += ["--storage-driver", "vfs"]

    def make_bases(self, where: Built) -> None:
        """What the Dockerfiles start from."""
        context = self._folder / "context"
        context.mkdir()
        os.link(where.root_layer, context / "root.tar")
        shutil.copy(_AUTHORITIES, context / "authorities.crt")
        for name, text in ((PYTHON_BASE, _PYTHON), (CUDA_BASE, _CUDA), (NO_SHELL_BASE, _NO_SHELL)):
            (context / "Dockerfile").write_text(text)
            self._build(context / "Dockerfile", name, context, {})
        shutil.rmtree(context)

    def build(self, name: str, image: str, **arguments: str) -> None:
        """Build deploy/images/NAME.Dockerfile.

        Raises:
            RuntimeError: a step of it fails; the text has the end of what was said.
        """
        self._build(TOP / "deploy" / "images" / f"{name}.Dockerfile", image, TOP, arguments)

    def save(self, image: str, archive: Path) -> None:
        """Write one image for containerd."""
        self._run("push", image, f"docker-archive:{archive}:{image}")

    def _build(self, file: Path, image: str, context: Path, arguments: Mapping[str, str]) -> None:
        words = ["bud", "--isolation", "chroot", "--pull-never", "--file", str(file), "--tag", image]
        for key, value in arguments.items():
            words += ["--build-arg", f"{key}={value}"]
        self._run(*words, str(context))

    def _run(self, *words: str) -> None:
        done = subprocess.run(["nice", "-n", "10", *self._words, *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"buildah {words[0]}: {(done.stderr + done.stdout)[-3000:]}")
