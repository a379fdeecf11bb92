"""containerd with runc and gVisor, in folders of its own."""

import os
import shlex
import subprocess
from pathlib import Path

from testcluster.folders import Built
from testcluster.image import PAUSE_IMAGE
from testcluster.network import write_cni
from testcluster.processes import Processes, end, noted, still
from testcluster.remains import descendants, kill, processes_with

NAMESPACE = "k8s.io"
"""The containerd namespace that the kubelet's containers and images are in."""
_CONFIG = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
]

[grpc]
address = "{socket}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
# runc may not lower a score without CAP_SYS_RESOURCE, which containers usually lack.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{cni}"]
conf_dir = "{folder}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
"""
_RUNTIME = """\
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}.options]
BinaryName = "{binary}"
Root = "{folder}/{name}"
SystemdCgroup = false
"""


class Containerd:
    """The node's container runtime."""

    def __init__(self, where: Built, folder: Path, processes: Processes) -> None:
        self._where, self._processes = where, processes
        self.folder = folder / "cd"
        self.socket = folder / "cd.sock"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            NotUp: it does not come up.
        """
        self.folder.mkdir(parents=True)
        write_cni(self.folder / "cni", self.folder / "addresses")
        config = self.folder / "config.toml"
        config.write_text(self._config())
        env = {"PATH": f"{self._where.programs}:{os.environ['PATH']}"}
        self._processes.start("containerd", [self._where.program("containerd"), "--config", str(config)], env)
        self._processes.wait("containerd", lambda: self.ctr("version").returncode == 0)

    def _config(self) -> str:
        text = _CONFIG.format(folder=self.folder, socket=self.socket, pause=PAUSE_IMAGE, cni=self._where.cni)
        runtimes = {"runc": self._where.program("runc"), "gvisor": str(self._gvisor())}
        for name, binary in runtimes.items():
            text += _RUNTIME.format(name=name, binary=binary, folder=self.folder)
        return text

    def _gvisor(self) -> Path:
        """The program that the runc shim takes for a runc, and that gives the pods' containers to gVisor."""
        path = self.folder / "runc-or-runsc"
        script = Path(__file__).with_name("runc_or_runsc.py")
        argv = ["/usr/bin/env", "python3", "-I", "-S", str(script), self._where.program("runc"), self._where.runsc]
        path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
        path.chmod(0o755)
        return path

    def ctr(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run containerd's own client."""
        argv = [self._where.program("ctr"), "--address", str(self.socket), "--namespace", NAMESPACE, *words]
        return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def load(self, archive: Path) -> None:
        """Import every image of an OCI archive.

        Raises:
            RuntimeError: containerd refuses it.
        """
        done = self.ctr("images", "import", str(archive))
        if done.returncode:
            raise RuntimeError(f"importing {archive} failed: {done.stderr[-2000:]}")

    def end_shims(self) -> None:
        """End what outlives containerd: its shims, found by our socket's path, and what runs in their containers."""
        shims = noted(processes_with(str(self.socket), "containerd-shim-runc-v2"))
        inside = noted(descendants(shims))
        for pid in still(shims):
            end(pid, 2.0)
        kill(still(inside))
        for pid in still(noted(processes_with(str(self.folder), "runsc"))):
            end(pid, 1.0)
