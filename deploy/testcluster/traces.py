"""What a run leaves on the machine outside of its own folder, and how it goes: mounts, cgroups, fixed folders."""

import contextlib
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from testcluster.remains import kill_in

_FILE = "before.json"
_CGROUPS = Path("/sys/fs/cgroup")
_KUBEPODS = "kubepods"
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass(frozen=True)
class Traces:
    """What was not there before the start."""

    folders: tuple[str, ...]
    cgroups: bool
    forwarding: str
    """The kernel's setting for forwarding, which CNI's bridge turns on; "" if it is not ours to set back."""

    @classmethod
    def of_now(cls, folders: tuple[str, ...]) -> "Traces":
        """Which of those folders, and whether the kubelet's cgroups, are not there now."""
        return cls(
            tuple(path for path in folders if not os.path.exists(path)),
            not pod_cgroups(),
            _FORWARDING.read_text().strip(),
        )

    def write(self, folder: Path) -> None:
        """Note it for whoever takes the cluster down; whole or not at all."""
        unfinished = folder / f"{_FILE}.partial"
        unfinished.write_text(json.dumps(asdict(self)))
        unfinished.rename(folder / _FILE)

    @classmethod
    def read(cls, folder: Path) -> "Traces":
        """What was noted; nothing, if the start did not come that far or the disk has not kept it."""
        try:
            noted = json.loads((folder / _FILE).read_text())
        except (OSError, ValueError):
            return cls((), False, "")
        return cls(tuple(noted["folders"]), noted["cgroups"], noted["forwarding"])

    def end_pods(self) -> None:
        """Kill what still runs in the kubelet's cgroups, where it is in pods of ours."""
        if self.cgroups:
            kill_in(pod_cgroups())

    def remove(self, folder: Path) -> None:
        """Unmount everything below `folder`, and remove what was not there before."""
        for place in mounts_below(str(folder)):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
        if self.cgroups:
            for group in pod_cgroups():
                _remove_cgroup(group)
        if self.forwarding:
            _FORWARDING.write_text(self.forwarding)
        for path in self.folders:
            shutil.rmtree(path, ignore_errors=True)


def mounts_below(folder: str) -> list[str]:
    """Mount points in a folder, the inner ones first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return sorted((place for place in places if place.startswith(folder + "/")), reverse=True)


def pod_cgroups() -> list[Path]:
    """The kubelet's cgroup in every hierarchy."""
    hierarchies = [_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink())]
    return [path / _KUBEPODS for path in hierarchies if (path / _KUBEPODS).is_dir()]


def _remove_cgroup(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
