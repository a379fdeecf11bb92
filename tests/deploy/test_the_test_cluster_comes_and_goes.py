"""deploy/testcluster: its parts where no cluster is needed, and a cluster that is given. That one leaves no trace is
looked at wherever tests have started it: fixtures/cluster.py."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from fixtures.cluster import ClusterUp, audit_lines
from testcluster.folders import built
from testcluster.image import Archive, Image, layer
from testcluster.pins import pins_hash
from testcluster.processes import NotUp, Processes, noted, started_at, still
from testcluster.runc_or_runsc import adopt, container, split
from testcluster.traces import Traces

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_an_archive_is_an_image_for_containerd(tmp_path: Path) -> None:
    """Every blob lies under its digest, once; the index names the images; the configuration names the layers."""
    shared = layer(tmp_path / "a.tar", {"etc/a": b"a"})
    archive = Archive(tmp_path / "images.tar")
    for name in ("x/one:1", "x/two:1"):
        archive.add(Image(name, [shared], ["/bin/a"]))
    archive.close()
    with tarfile.open(tmp_path / "images.tar") as tar:
        names = tar.getnames()
        data = {name: file.read() for name in names if (file := tar.extractfile(name)) is not None}
    assert len(names) == len(set(names))
    for name, content in data.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    index = json.loads(data["index.json"])
    assert [one["annotations"]["io.containerd.image.name"] for one in index["manifests"]] == ["x/one:1", "x/two:1"]
    manifest = json.loads(data["blobs/sha256/" + index["manifests"][0]["digest"].partition(":")[2]])
    assert manifest["layers"][0]["size"] == shared.stat().st_size


def test_the_pins_name_the_cache() -> None:
    """The same pins, the same folder."""
    assert built().folder.name == pins_hash()
    assert len(pins_hash()) == 16


def test_gvisors_stand_in_finds_the_container(tmp_path: Path) -> None:
    """Whatever options runc's shim gives; a sandbox container stays runc's, another one loses what misleads runsc."""
    words = ["--root", "/r/k8s.io", "--log", "/l", "--log-format", "json", "kill", "--all", "abc", "9"]
    options, command, rest = split(words)
    assert (options["--root"], command, container(command, rest)) == ("/r/k8s.io", "kill", "abc")
    assert container("delete", ["--force", "abc"]) == "abc"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"annotations": {"io.kubernetes.cri.container-type": "sandbox"}}))
    assert not adopt(tmp_path)
    config.write_text(json.dumps({"annotations": {"io.kubernetes.cri.container-type": "container", "a": "b"}}))
    assert adopt(tmp_path)
    assert json.loads(config.read_text())["annotations"] == {"a": "b"}


def test_a_process_is_ended_by_pid_and_start_time(tmp_path: Path) -> None:
    """One that ended is told with the end of its log; a pid that another process has got is not ours."""
    processes = Processes(tmp_path)
    processes.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
    pid = processes.pid("sleeper")
    assert pid and processes.names() == ["sleeper"]
    processes.stop("sleeper")
    assert not started_at(pid) and processes.names() == []
    processes.start("crasher", [sys.executable, "-c", "print('no such option'); raise SystemExit(1)"])
    with pytest.raises(NotUp, match="no such option"):
        processes.wait("crasher", lambda: False, 30)
    processes.stop("crasher")
    (tmp_path / "pids" / "crasher").write_text(f"{os.getpid()} 1")
    assert processes.pid("crasher") == 0


def test_a_listed_process_is_looked_at_again_before_its_end() -> None:
    """One that ended while others were ended is passed over, and so is another process that has got its pid."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        listed = noted([os.getpid(), sleeper.pid])
        left = still(listed)
        assert next(left) == os.getpid()
        sleeper.kill()
        sleeper.wait()
        assert list(left) == []
    assert noted([sleeper.pid]) == {}
    assert list(still({os.getpid(): "1"})) == []


def test_an_unreadable_note_is_none(tmp_path: Path) -> None:
    """What was there before a start is noted whole or not at all; half of a note stops nobody."""
    before = Traces(("/a",), True, "0")
    before.write(tmp_path)
    (note,) = tmp_path.iterdir()
    assert Traces.read(tmp_path) == before
    for text in ("", note.read_text()[:20]):
        note.write_text(text)
        assert Traces.read(tmp_path) == Traces((), False, "")


@pytest.mark.cluster
def test_a_given_cluster_is_used(cluster: ClusterUp) -> None:
    """KUBECONFIG names one: nothing is started or taken down, and tests have their pods in it."""
    own = cluster.own
    if own is None:
        pytest.skip("this run is given a cluster itself")
    env = {**os.environ, "KUBECONFIG": str(own.api.kubeconfig), "PYTHONPATH": str(DEPLOY)}
    said = subprocess.run([sys.executable, "-m", "testcluster", "up"], env=env, capture_output=True, text=True)
    assert said.returncode == 0 and "nothing is started" in said.stdout, said
    before = len(audit_lines(own))
    test = "tests/providers/test_kubernetes_pods_are_what_they_say.py::test_an_evicted_pod_says_who_took_it"
    words = [sys.executable, "-P", "-m", "pytest", "-q", "-m", "cluster", "-p", "no:cacheprovider", test]
    ran = subprocess.run(words, env=env, cwd=DEPLOY.parent, capture_output=True, text=True)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout[-2000:]
    created = [
        one for one in audit_lines(own)[before:] if one["verb"] == "create" and "/pods" in str(one["requestURI"])
    ]
    assert created and own.is_up


@pytest.mark.cluster
def test_what_keeps_the_simulated_nodes_hears_of_everything(cluster: ClusterUp) -> None:
    """None of kwok's watches is refused: its nodes would be silent for up to a minute, and their pods slow to run."""
    if cluster.own is None:
        pytest.skip("another cluster's kwok is not looked at")
    text = cluster.own.processes.log("kwok").read_text()
    assert "Syncing lease" in text and "storage feature" not in text
