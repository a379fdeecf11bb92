"""Where the cluster's files lie: what is built once in the user's cache, what one run needs in a folder of its own."""

import os
from dataclasses import dataclass
from pathlib import Path

from testcluster.pins import pins_hash


def _top() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "emberpool" / "testcluster"


@dataclass(frozen=True)
class Built:
    """Programs, packages and images of the pins as they are now."""

    folder: Path

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    @property
    def debian(self) -> Path:
        """Debian packages, unpacked over each other."""
        return self.folder / "debian"

    @property
    def downloads(self) -> Path:
        return self.folder / "downloads"

    @property
    def root_layer(self) -> Path:
        """The pods' Debian, as one layer of an image."""
        return self.folder / "root.tar"

    @property
    def stages(self) -> Path:
        """What kwok does with nodes and pods: its own fast stages."""
        return self.folder / "stages.yaml"

    def program(self, name: str) -> str:
        """Path of a program that was built here."""
        return str(self.programs / name)

    @property
    def etcd(self) -> str:
        return str(self.debian / "usr/bin/etcd")

    @property
    def nft(self) -> str:
        return str(self.debian / "usr/sbin/nft")

    @property
    def libraries(self) -> str:
        """What programs of the packages are linked to."""
        return str(self.debian / "usr/lib/x86_64-linux-gnu")

    @property
    def runsc(self) -> str:
        return str(self.debian / "usr/bin/runsc")

    @property
    def cni(self) -> str:
        """Folder of the CNI plugins."""
        return str(self.debian / "usr/lib/cni")


def built() -> Built:
    """The cache of the current pins."""
    return Built(_top() / pins_hash())


def run_folder() -> Path:
    """State, logs and sockets of the one cluster that runs; gone when it is down.

    Below no home: root of a pod's user namespace is nobody here, and must get through to its own root file system.
    """
    return Path("/var/lib/emberpool-testcluster")
