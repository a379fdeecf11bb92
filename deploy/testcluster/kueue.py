"""Kueue's controller on the test cluster, for as long as a test wants it: workloads get quota or wait for it.

Its webhooks are not registered, so that nothing is filled in or gated: jobs are made suspended and name their queue.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager

from testcluster.cluster import Cluster
from testcluster.crds import KUEUE, objects
from testcluster.network import free_port

NAMESPACE = "kueue-system"
_CERTIFICATES = ("etc/kueue/metrics/certs", "tmp/k8s-webhook-server/serving-certs")
"""Where it looks for them, whatever it is told: below folders that stand in for /etc and /tmp."""


@contextmanager
def kueue(cluster: Cluster) -> Generator[None]:
    """It runs, and its kinds are known; both go with the block, and all objects of its kinds.

    Raises:
        NotUp: it does not come up.
    """
    kinds = objects(KUEUE)
    names = [one["metadata"]["name"] for one in kinds]
    cluster.fresh(NAMESPACE)
    cluster.apply([*kinds, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *(f"crd/{name}" for name in names))
    try:
        _start(cluster)
        yield
        for name in ("workloads", "localqueues", "clusterqueues", "resourceflavors"):
            # It alone takes its finalizers off, and must still run for that.
            cluster.kubectl("delete", f"{name}.kueue.x-k8s.io", "--all", "--all-namespaces", "--timeout=60s")
    finally:
        cluster.processes.stop("kueue")
        cluster.kubectl("delete", "crd", *names, "--wait=false")
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _start(cluster: Cluster) -> None:
    folder = cluster.folder / "kueue"
    for name in _CERTIFICATES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    first, second = (folder / name for name in _CERTIFICATES)
    pair = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=kueue"]
    pair += ["-keyout", str(first / "tls.key"), "-out", str(first / "tls.crt")]
    subprocess.run(pair, check=True, capture_output=True)
    for path in first.iterdir():
        (second / path.name).write_bytes(path.read_bytes())
    port, config = free_port(), folder / "config.json"
    config.write_text(json.dumps(_config(port)))
    # A mount namespace of its own: nothing of it is seen in the machine's /etc and /tmp. The program is opened first,
    # for it may lie below /tmp itself.
    script = f'exec 3<"$1" && shift && mount --bind {folder}/etc /etc && mount --bind {folder}/tmp /tmp && '
    script += 'exec /proc/self/fd/3 "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", cluster.where.program("kueue"), f"--config={config}"]
    argv += [f"--kubeconfig={cluster.api.kubeconfig}", "--feature-gates=VisibilityOnDemand=false"]
    cluster.processes.start("kueue", argv, {"HOME": str(folder)})
    cluster.processes.wait("kueue", lambda: _answers(port), 60)


def _config(port: int) -> dict[str, object]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": free_port()},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
    }


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False
