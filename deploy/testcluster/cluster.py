"""The cluster as a whole: up from nothing, down to nothing."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from testcluster.api import Api
from testcluster.containerd import Containerd
from testcluster.folders import Built, run_folder
from testcluster.guard import Owner, alone, start_guard
from testcluster.image import write_images
from testcluster.kubelet import NODE, start_kubelet
from testcluster.kwok import write_kwok_config
from testcluster.network import make_bridge, remove_bridge
from testcluster.objects import RUNTIME_CLASSES, fake_node, runtime_class
from testcluster.policies import Rules
from testcluster.processes import Processes, end, noted, still
from testcluster.remains import MARK, processes_of
from testcluster.traces import Traces

FAKE_NODES = 10
KUBELET_FOLDERS = ("/var/lib/kubelet", "/var/log/containers", "/run/containerd", "/var/lib/cni")
"""Folders that the kubelet and the shims make whatever they are told; removed again if they were not there before."""


class Cluster:
    """The one cluster of this machine and user."""

    def __init__(self, where: Built, folder: Path | None = None) -> None:
        self.where = where
        self.folder = folder or run_folder()
        self.processes = Processes(self.folder)
        self.api = Api(where, self.folder, self.processes)
        self.containerd = Containerd(where, self.folder, self.processes)
        self._started = self.folder / "started"
        """A file that is there from the end of a start to the beginning of its end."""
        self.rules = Rules(where, self.kubectl)
        """Network policies, where a test wants them enforced."""

    @property
    def is_up(self) -> bool:
        """Whether its start is done, every part of it runs, and whoever it was started for is still there."""
        names, owner = self.processes.names(), Owner.of(self.folder)
        running = self._started.exists() and "kubelet" in names and all(map(self.processes.pid, names))
        return running and (owner is None or not owner.gone)

    def up(self, owner: Owner | None = None) -> bool:
        """Start it and wait until pods can run, unless it is up; whether it was started here, and is ours to end.

        A start that is on its way is waited for. What an earlier one has left is taken down first. With an `owner`,
        what is started here goes as soon as that process has ended, however it ended.

        Raises:
            NotUp: a part does not come up; its log is in the folder `logs`.
        """
        with self._alone():
            if self.is_up:
                return False
            if self.folder.exists():
                self._down()
            self.folder.mkdir(parents=True)
            self.folder.chmod(0o711)
            if owner is not None:
                owner.note(self.folder)
                start_guard(self.processes, owner)
            self._up()
            self._started.touch()
            return True

    def _up(self) -> None:
        Traces.of_now(KUBELET_FOLDERS).write(self.folder)
        make_bridge()
        with ThreadPoolExecutor(2) as beside:
            images = beside.submit(self._start_containerd)
            self.api.start()
            self._start_control()
            images.result()
        start_kubelet(self.where, self.folder, self.processes, self.api, self.containerd)
        self._start_kwok()
        objects = [runtime_class(name) for name in RUNTIME_CLASSES]
        objects += [fake_node(f"fake-{number}") for number in range(FAKE_NODES)]
        self.apply(objects)
        self.processes.wait("kubelet", self._pods_can_run, 60)

    def down(self, of: Owner | None = None) -> None:
        """End every process, mount, bridge and folder of it. Idempotent. `of`: only if it was started for that one."""
        with self._alone():
            if of is None or Owner.of(self.folder) == of:
                self._down()

    def _down(self) -> None:
        self._started.unlink(missing_ok=True)
        self.processes.resume()
        if self.processes.pid("kubelet") and self.processes.pid("kube-apiserver"):
            self._delete_pods()
        for name in reversed(self.processes.names()):
            if name == "containerd":
                self.containerd.end_shims()
            # What it would still do for its clients and its state, both of which go with it, takes seconds.
            self.processes.stop(name, 1.0 if name == "kube-apiserver" else 10.0)
        self.containerd.end_shims()
        traces = Traces.read(self.folder)
        traces.end_pods()
        # Whoever started these was killed before he noted them.
        for pid in still(noted(processes_of(self.folder))):
            end(pid, 2.0)
        self.rules.remove()
        remove_bridge()
        if self.folder.exists():
            traces.remove(self.folder)
            shutil.rmtree(self.folder)

    def _alone(self) -> AbstractContextManager[None]:
        return alone(self.where.folder.parent)

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl as administrator and return what it prints.

        Raises:
            RuntimeError: it failed.
        """
        argv = [self.where.program("kubectl"), "--kubeconfig", str(self.api.kubeconfig), *words]
        env = {**os.environ, "HOME": str(self.folder), MARK: str(self.folder)}
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, env=env)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, objects: list[dict[str, object]]) -> None:
        """Create or change objects."""
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(items))

    def fresh(self, *namespaces: str) -> None:
        """Return when no namespace has such a name any more: one that is deleted takes six seconds at least, which
        nobody needs to wait for but who makes it anew.

        Raises:
            RuntimeError: there is one for a minute.
        """
        names = [f"namespace/{name}" for name in namespaces]
        self.kubectl("wait", "--for=delete", "--timeout=60s", *names)

    def _start_containerd(self) -> None:
        self.containerd.start()
        archive = self.folder / "images.tar"
        write_images(self.where, archive)
        self.containerd.load(archive)
        archive.unlink()

    def _start_control(self) -> None:
        self._start_controllers()
        # Unpaced, as a scheduler of thousands of pods is: it binds no more than 50 a second otherwise.
        self._start("kube-scheduler", {**self._common, "kube-api-qps": 1000, "kube-api-burst": 1000})

    @property
    def _common(self) -> dict[str, object]:
        return {"kubeconfig": self.api.kubeconfig, "leader-elect": "false", "secure-port": 0}

    def _start_controllers(self, **more: str) -> None:
        accounts = {
            "service-account-private-key-file": self.api.folder / "accounts.key",
            "use-service-account-credentials": "false",
            # What pods trust: without it they get an empty file.
            "root-ca-file": self.api.folder / "apiserver.crt",
        }
        self._start("kube-controller-manager", {**self._common, **accounts, **more})

    @contextmanager
    def hasty(self) -> Generator[None]:
        """For as long as the block lasts, nodes count as not ready after 8 s of silence instead of 50.

        Others than those that are meant may then do so too, since they are to be heard of every 10 s.
        """
        self.processes.stop("kube-controller-manager")
        self._start_controllers(**{"node-monitor-grace-period": "8s", "node-monitor-period": "1s"})
        try:
            yield
        finally:
            self.processes.stop("kube-controller-manager")
            self._start_controllers()

    def _start_kwok(self) -> None:
        options = {
            "kubeconfig": self.api.kubeconfig,
            "manage-all-nodes": "false",
            "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
            "config": write_kwok_config(self.where.stages, self.folder / "kwok.yaml"),
        }
        self._start("kwok", options)

    def _start(self, program: str, options: Mapping[str, object]) -> None:
        argv = [self.where.program(program), *(f"--{name}={value}" for name, value in options.items())]
        # They would look for a configuration of the user's.
        self.processes.start(program, argv, {"HOME": str(self.folder)})

    def _pods_can_run(self) -> bool:
        """Whether the node is ready and pods get their service account."""
        try:
            node = json.loads(self.kubectl("get", "node", NODE, "-o", "json"))
            self.kubectl("get", "serviceaccount", "default")
        except RuntimeError:
            return False
        return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])

    def _delete_pods(self) -> None:
        """While the kubelet still runs: it alone takes a pod down whole."""
        try:
            # Thousands of simulated ones would take minutes, and leave nothing behind anyway.
            real = f"--field-selector=spec.nodeName={NODE}"
            words = ("--all-namespaces", real, "--grace-period=1", "--wait=false", "--request-timeout=10s")
            self.kubectl("delete", "pods", *words)
        except RuntimeError:
            return
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.containerd.ctr("tasks", "list", "--quiet").stdout.strip():
            time.sleep(0.1)
