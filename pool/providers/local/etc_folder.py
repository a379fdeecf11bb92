"""The /etc that pods see: a small folder of its own, made once per supervisor.

A copy and not binds of single files, since a room's overlay does not look below mounts. It holds what programs need to
start and to check certificates, and nothing that tells of the host: no accounts, no resolver, no host names.
"""

import contextlib
import os
import shutil
from pathlib import Path

PASSWD = "root:x:0:0:job:/home/job:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"
HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
COPIED_FILES = ("ld.so.cache", "localtime", "services", "protocols", "mime.types", "ssl/openssl.cnf")
COPIED_FOLDERS = ("ssl/certs", "alternatives", "pki/tls/certs", "pki/ca-trust/extracted")


def _readable(folder: str, names: list[str]) -> set[str]:
    """What to leave out: whatever others may not read, so that no private key is ever copied."""
    out: set[str] = set()
    for name in names:
        with contextlib.suppress(OSError):
            if os.lstat(os.path.join(folder, name)).st_mode & 0o004:
                continue
        out.add(name)
    return out


def build_etc(target: Path, host: Path = Path("/etc")) -> Path:
    """Make `target` anew and return it.

    Raises:
        OSError: it cannot be written. What the host does not have is left out.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o755, parents=True)
    texts = {"passwd": PASSWD, "group": GROUP, "hosts": HOSTS, "nsswitch.conf": NSSWITCH, "shells": "/bin/sh\n"}
    for name, text in texts.items():
        (target / name).write_text(text)
    for name in COPIED_FILES:
        with contextlib.suppress(FileNotFoundError):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(host / name, target / name)
    for name in COPIED_FOLDERS:
        if (host / name).is_dir():
            shutil.copytree(host / name, target / name, symlinks=True, ignore=_readable, dirs_exist_ok=True)
    (target / "os-release").symlink_to("../usr/lib/os-release")
    let_all_read(target)
    return target


def let_all_read(folder: Path) -> None:
    """The supervisor's umask must not decide what a pod's user can read."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
