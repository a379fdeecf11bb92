"""emberd's own image, and images that have no emberd to mount it into: one with glibc, one with musl."""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testcluster.folders import Built
from testcluster.image import EMBERD_SOURCE, Archive, Image, layer

EMBERD_IMAGE = "emberpool.invalid/emberd:1"
GLIBC_IMAGE = "emberpool.invalid/glibc:1"
MUSL_IMAGE = "emberpool.invalid/musl:1"
WHICH_LIBC = "which-libc"
"""A program of the musl image, linked to its C library, that says which it is."""
LOADER = "ld-musl-x86_64.so.1"
PORTABLE_PYTHON = Path(__file__).parents[1] / "images" / "portable_python.py"
_APPLETS = ("sh", "ls", "cat", "env", "ps", "mkdir", "rm", "wc")
_SOURCE = """
#include <stdio.h>
#ifdef __GLIBC__
#error "these are glibc's headers"
#endif
int main(void) { puts("musl"); return 0; }
"""


def write_injected_images(where: Built, archive: Path) -> None:
    """Write the archive of all three. emberd's Python is the one that runs this."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        images = Archive(archive)
        images.add(Image(EMBERD_IMAGE, [_emberd_layer(folder)], ["/none"]))
        images.add(Image(GLIBC_IMAGE, [where.root_layer], ["/bin/sh"]))
        images.add(Image(MUSL_IMAGE, [_musl_layer(where, folder)], ["/bin/sh"]))
        images.close()


def _emberd_layer(folder: Path) -> Path:
    base = os.path.realpath(sys.executable)
    argv = [base, "-I", str(PORTABLE_PYTHON), str(folder / "emberd"), str(EMBERD_SOURCE)]
    subprocess.run(argv, check=True)
    path = folder / "emberd.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(folder / "emberd", arcname=".", filter=_roots)
    return path


def _roots(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _musl_layer(where: Built, folder: Path) -> Path:
    """No file of glibc's: a static busybox, musl's loader, which is its C library too, and a program linked to it."""
    libraries = where.debian / "usr/lib/x86_64-linux-musl"
    program = folder / WHICH_LIBC
    # Debian's musl-gcc is a script with installed paths in it.
    argv = ["gcc", "-nostdinc", "-isystem", str(where.debian / "usr/include/x86_64-linux-musl"), "-xc", "-", "-xnone"]
    argv += ["-nostdlib", "-no-pie", f"-Wl,-dynamic-linker,/lib/{LOADER}", f"-L{libraries}", "-o", str(program)]
    argv += [str(libraries / name) for name in ("crt1.o", "crti.o")] + ["-lc", str(libraries / "crtn.o")]
    subprocess.run(argv, input=_SOURCE, text=True, check=True)
    files = {
        f"lib/{LOADER}": (where.debian / "lib/x86_64-linux-musl/libc.so").read_bytes(),
        "bin/busybox": (where.debian / "bin/busybox").read_bytes(),
        f"bin/{WHICH_LIBC}": program.read_bytes(),
    }
    return _with_links(layer(folder / "musl.tar", files, 0o755), {f"bin/{name}": "busybox" for name in _APPLETS})


def _with_links(path: Path, links: Mapping[str, str]) -> Path:
    with tarfile.open(path, "a") as tar:
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member, io.BytesIO())
    return path
