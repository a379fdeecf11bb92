"""The test cluster goes without a trace also where whoever started it is killed, or its own parts are."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fixtures.cluster_remains import Seen
from testcluster.cluster import Cluster
from testcluster.folders import built
from testcluster.guard import GUARD, Owner, alone
from testcluster.image import POD_IMAGES
from testcluster.objects import RUNTIME_CLASSES
from testcluster.processes import started_at, wait_for
from testcluster.remains import processes_with

DEPLOY = Path(__file__).parents[2] / "deploy"
COMMAND = (sys.executable, "-P", "-m", "testcluster")
RUN = """
import json, sys, time
from testcluster.cluster import Cluster
from testcluster.folders import built
from testcluster.guard import Owner
cluster = Cluster(built())
cluster.up(Owner.me())
pods = json.loads(sys.argv[1])
cluster.apply(pods)
cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *("pod/" + pod["metadata"]["name"] for pod in pods))
cluster.rules.apply()
print("pods run", flush=True)
time.sleep(600)
"""
"""As a run of tests does: a cluster of its own, with pods in it and rules on its bridge."""


def test_an_owner_is_gone_when_its_process_is(tmp_path: Path) -> None:
    """By pid and start time; a folder without a note, or with half of one, is nobody's."""
    assert Owner.of(tmp_path) is None
    (tmp_path / "owner").write_text("12")
    assert Owner.of(tmp_path) is None
    me = Owner.me()
    me.note(tmp_path)
    assert Owner.of(tmp_path) == me and not me.gone
    other = Owner(os.getpid(), "1")
    assert other.gone
    other.wait()
    child = subprocess.Popen(["sleep", "60"])
    owner = Owner(child.pid, started_at(child.pid))
    child.kill()
    owner.wait()
    assert owner.gone
    child.wait()


@pytest.mark.cluster(before=True)
def test_a_killed_run_takes_its_cluster_along() -> None:
    """SIGKILL to a start on its way: the next start takes down what it left, noted or not. SIGKILL to a run whose pods
    run, of both runtime classes: its cluster is gone within the minute, and nobody has to say so."""
    with nobody_elses() as cluster:
        killed = killed_start(cluster)
        with run() as running:
            assert not any(started_at(pid) for pid in killed), "the start takes down what the killed one left"
            pids = [cluster.processes.pid(name) for name in cluster.processes.names()]
            assert cluster.is_up and all(pids) and len(pids) >= 8, cluster.processes.names()
            assert "fake-9" in cluster.kubectl("get", "nodes")
            seen = Seen.now(cluster)
            assert len(seen.networks) >= len(RUNTIME_CLASSES) and len(seen.links) > len(RUNTIME_CLASSES), seen
            running.kill()
            wait_for("a machine without the cluster", lambda: not seen.left(cluster), 60)
        assert not cluster.is_up


@pytest.mark.cluster(before=True)
def test_a_broken_cluster_is_taken_down() -> None:
    """SIGKILL to the run, to its guard, the kubelet, containerd and a shim, while pods run and one container stands
    still; another process was never noted. `make cluster-down` leaves nothing, and says so by its status."""
    with nobody_elses() as cluster, run() as running:
        seen = Seen.now(cluster)
        shims = processes_with(str(cluster.containerd.socket), "containerd-shim-runc-v2")
        stopped = processes_with(str(cluster.folder), "runsc-sandbox")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        for pid in (*(cluster.processes.pid(name) for name in (GUARD, "kubelet", "containerd")), shims[0], running.pid):
            os.kill(pid, signal.SIGKILL)
        (cluster.folder / "pids" / "kwok").unlink()
        running.wait()
        assert seen.left(cluster) and not cluster.is_up
        down = subprocess.run([*COMMAND, "down"], env=environment(), capture_output=True, text=True)
        assert down.returncode == 0, down
        assert seen.left(cluster) == []


@contextmanager
def nobody_elses() -> Generator[Cluster]:
    """The machine's cluster, which is not up, nor is it afterwards."""
    cluster = Cluster(built())
    with alone(cluster.where.folder.parent):  # not while somebody starts it
        is_up = cluster.is_up
    if is_up:
        pytest.skip("a cluster is up, and stays so")
    try:
        yield cluster
    finally:
        cluster.down()


@contextmanager
def run() -> Generator[subprocess.Popen[str]]:
    """A process with a cluster of its own, once its pods run."""
    words = [sys.executable, "-P", "-c", RUN, json.dumps([pod(name) for name in RUNTIME_CLASSES])]
    running = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    with running:
        try:
            assert running.stdout.readline() == "pods run\n"
            yield running
        finally:
            running.kill()


def killed_start(cluster: Cluster) -> list[int]:
    """Begin a start, and kill whoever starts it once the API server runs; the processes that are left."""
    start = subprocess.Popen([*COMMAND, "up"], env=environment(), stdout=subprocess.DEVNULL)
    try:
        wait_for("an API server", lambda: cluster.processes.pid("kube-apiserver") > 0, 60)
    finally:
        start.kill()
        start.wait()
    pids = [cluster.processes.pid(name) for name in cluster.processes.names()]
    assert len(pids) >= 2 and all(pids)
    # As if it had been killed a moment earlier, before it noted what it had started.
    (cluster.folder / "pids" / "etcd").unlink()
    return pids


def environment() -> dict[str, str]:
    """For a program of deploy/testcluster's."""
    mine = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return {**mine, "PYTHONPATH": str(DEPLOY)}


def pod(runtime_class: str) -> dict[str, object]:
    """One that runs until it is killed, with a mount of its own."""
    container = {
        "name": "sleeper",
        "image": POD_IMAGES[0],
        "command": ["sh", "-c", "trap '' TERM; while :; do sleep 600; done"],
        "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
    }
    spec: dict[str, object] = {
        "runtimeClassName": runtime_class,
        "nodeSelector": {"kubernetes.io/hostname": "real"},
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"sleeper-{runtime_class}"}, "spec": spec}
