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
    GoProgram("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue"),
    GoProgram("device-plugin", "devices", "emberpool.invalid/testcluster/devices"),
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
    DebianPackage("nftables", "1.0.6-2+deb12u2", "966ff20ce58c17163a771c02ddbca264291408f94c512bd85dd18da0ebdbe88c"),
    DebianPackage(
        "libnftables1", "1.0.6-2+deb12u2", "3a8223f9bfba99d97bf25296ac83de307ab036e1df63e5965f88809266851947"
    ),
    DebianPackage("libnftnl11", "1.2.4-2", "9e619e1470a1915264e906020f3bfc046fd8458043b1342686d997b5078213af"),
    DebianPackage("libjansson4", "2.14-2", "3fc9742f9f1a37bcb9931df6074b4d1483419ef832ad5349f47323e75fc27864"),
    DebianPackage("libmnl0", "1.0.4-3", "4581f42e3373cb72f9ea4e88163b17873afca614a6c6f54637e95aa75983ea7c"),
    DebianPackage("libxtables12", "1.8.9-2", "cb841d66950a43af4a398625313d2f3da9065299c9738538de6c2c3495857040"),
    DebianPackage("libedit2", "3.1-20221030-2", "1cf14abf2716d3279db12d0657a5737cf70074a1e71d3bdf73206625e3c89ce6"),
    DebianPackage("musl", "1.2.3-1", "4fc1e3d9b579f5c682ca99a4d45aec08d72a2e6b82b4c2e1bbcb7095466ae96d"),
    DebianPackage("musl-dev", "1.2.3-1", "7c34f29a0c1aa12f6da1d25ed6de6fe6bbd9e048ee76b3dcb88c5e51fb65507f"),
    DebianPackage(
        "busybox-static", "1:1.35.0-4+deb12u1+b1", "3d3fdbe91d4660c873e14b092c213fe81c1da6362daa236eb25d0171eb108744"
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
