"""Builds what is not in the cache yet: Go programs from the module proxy, Debian packages through apt.

Nothing is installed into the system. Everything appears under its final name only when it is whole, so that a build
that was interrupted goes on where it stopped.
"""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from testcluster.folders import Built
from testcluster.machine import missing_tools
from testcluster.pins import BUILD, KEYRING, MIRROR, PACKAGES, PROGRAMS, SUITE, DebianPackage, GoProgram
from testcluster.root import build_root

GENTLE = ("nice", "-n", "19")
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
"""Of kwok's: nodes are ready at once and stay so, pods run at once and are gone when they are deleted."""


class CannotBuild(Exception):
    """This machine cannot make the cluster; the text says what is missing."""


def is_built(where: Built) -> bool:
    """Whether nothing is left to build."""
    programs = all((where.programs / program.name).exists() for program in PROGRAMS)
    return programs and _unpacked(where, PACKAGES) and where.root_layer.exists() and where.stages.exists()


def build(where: Built) -> None:
    """Build what is missing, at low priority.

    Raises:
        CannotBuild: a tool is missing, a checksum differs, or a build fails.
    """
    reason = missing_tools()
    if reason:
        raise CannotBuild(reason)
    where.programs.mkdir(parents=True, exist_ok=True)
    _fetch_packages(where)
    if not where.root_layer.exists():
        _timed("the pods' Debian", lambda: build_root(where))
    for program in PROGRAMS:
        if not (where.programs / program.name).exists():
            _timed(program.name, partial(_build_program, where, program))
    if not where.stages.exists():
        _write_stages(where)


def _timed(what: str, act: Callable[[], None]) -> None:
    began = time.monotonic()
    print(f"building {what} ...", flush=True)
    act()
    print(f"  {what}: {time.monotonic() - began:.0f} s", flush=True)


def _build_program(where: Built, program: GoProgram) -> None:
    target = where.programs / program.name
    unfinished = target.with_suffix(".partial")
    argv = [*GENTLE, "go", "build", "-o", str(unfinished), "-ldflags", program.ldflags]
    argv += ["-tags", program.tags, program.package] if program.tags else [program.package]
    libraries = where.debian / "usr/lib/x86_64-linux-gnu"
    env = {
        **os.environ,
        "CGO_ENABLED": "1" if program.cgo else "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOWORK": "off",
        "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(where.debian),
    }
    _run(argv, f"go build {program.name}", cwd=BUILD / program.module, env=env)
    unfinished.rename(target)


def _write_stages(where: Built) -> None:
    """kwok's own stages come with its module."""
    module = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"],
        cwd=BUILD / "kwok",
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(module.stdout.strip()) / "kustomize/stage"
    files = [path for name in STAGES for path in sorted((folder / name).glob("*.yaml"))]
    texts = [path.read_text() for path in files if path.name != "kustomization.yaml"]
    where.stages.write_text("\n---\n".join(texts))


def _mark(where: Built, package: DebianPackage) -> Path:
    return where.downloads / f"{package.name}.unpacked"


def _unpacked(where: Built, packages: Iterable[DebianPackage]) -> bool:
    return all(_mark(where, package).exists() for package in packages)


def _fetch_packages(where: Built) -> None:
    """Download through apt, which checks Debian's signatures, then check our own sums and unpack."""
    if _unpacked(where, PACKAGES):
        return
    options = _apt_folder(where)
    _run([*GENTLE, "apt-get", *options, "-qq", "update"], "apt-get update", cwd=where.downloads)
    wanted = [f"{package.name}={package.version}" for package in PACKAGES]
    _run([*GENTLE, "apt-get", *options, "-qq", "download", *wanted], "apt-get download", cwd=where.downloads)
    for package in PACKAGES:
        _unpack(where, package)


def _apt_folder(where: Built) -> list[str]:
    """An apt of our own, which knows Debian and its backports only, and takes no lock of the system's."""
    apt = where.downloads / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    lines = [f"deb [signed-by={KEYRING}] {MIRROR} {suite} main\n" for suite in (SUITE, f"{SUITE}-backports")]
    (apt / "sources.list").write_text("".join(lines))
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        # Else it warns that its own user cannot write into the folder.
        "APT::Sandbox::User": "root",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _unpack(where: Built, package: DebianPackage) -> None:
    version = package.version.replace(":", "%3a")
    (path,) = where.downloads.glob(f"{package.name}_{version}_*.deb")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != package.sha256:
        raise CannotBuild(f"{path.name} has SHA-256 {found}, the pin says {package.sha256}")
    _run(["dpkg-deb", "-x", str(path), str(where.debian)], f"unpacking {package.name}", cwd=where.downloads)
    _mark(where, package).touch()


def _run(argv: list[str], what: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"{what} failed with {done.returncode}:\n{(done.stderr or done.stdout)[-3000:]}")
