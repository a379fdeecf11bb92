"""Every program of the cluster and the exact version that it is built or unpacked from.

Go modules are held by build/*/go.mod and go.sum, Debian packages by version and SHA-256.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

BUILD = Path(__file__).with_name("build")
"""A Go module per group of programs, so that their dependencies do not meet."""
KUBERNETES = "v1.36.3"
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
ROOT_PACKAGES = ("python3",)
"""What the pods' image has beside Debian's minimum."""


@dataclass(frozen=True)
class GoProgram:
    """One program, built from a module in BUILD."""

    name: str
    module: str
    package: str
    tags: str = ""
    ldflags: str = "-s -w"
    cgo: bool = False


@dataclass(frozen=True)
class DebianPackage:
    """One package, unpacked into the cache and never installed."""

    name: str
    version: str
    sha256: str


def _kubernetes(name: str) -> GoProgram:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    stamp = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    return GoProgram(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", ldflags=f"-s -w {flags}")


def _containerd(name: str, cgo: bool = False) -> GoProgram:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return GoProgram(name, "containerd", package, tags="no_btrfs no_zfs urfave_cli_no_docs", cgo=cgo)


PROGRAMS = (
    GoProgram("pause", "pause", "emberpool.invalid/testcluster/pause"),
    GoProgram("runc", "runc", "github.com/opencontainers/runc", tags="seccomp", cgo=True),
    _containerd("containerd", cgo=True),
    _containerd("containerd-shim-runc-v2"),
    _containerd("ctr"),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubelet"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kubectl"),
    GoProgram("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)

PACKAGES = (
    DebianPackage("etcd-server", "3.4.23-4+b4", "3a9445d4560ad6de1c375756b2a17d97713df44cbd20a658c871fe108af7ef5d"),
    DebianPackage(
        "containernetworking-plugins",
        "1.1.1+ds1-3+b5",
        "4cac8143474d1249b19f7b0e80b8d0daaa6dfdaa8bd514bc468d38d4a108099f",
    ),
    DebianPackage(
        "runsc", "0.0~20240729.0-4~bpo12+2", "afdde883e3876ea807e19c708d4432674a20cb10186a7a5b554d62f38ea8de46"
    ),
    DebianPackage(
        "libseccomp-dev", "2.5.4-1+deb12u1", "5fb305f3aeb293e2b78a4cfcb58c0f42179703c371a408d002c8454661e6b7b2"
    ),
    DebianPackage(
        "debootstrap", "1.0.128+nmu2+deb12u2", "63f354316e9bbe747b143b7b0d83e5f237c90314a17734fba9ff202c2ef02760"
    ),
)


def pins_hash() -> str:
    """16 hex digits over every pin: the cache's folder."""
    digest = hashlib.sha256(json.dumps([asdict(pin) for pin in (*PROGRAMS, *PACKAGES)]).encode())
    digest.update(json.dumps([SUITE, ROOT_PACKAGES]).encode())
    for name in sorted({program.module for program in PROGRAMS}):
        for path in sorted((BUILD / name).iterdir()):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
