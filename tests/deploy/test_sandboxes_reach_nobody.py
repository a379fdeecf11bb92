"""deploy/base's NetworkPolicies on the real node, enforced by nftables rules that are generated from them."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures.cluster import ClusterUp, KubernetesSite
from fixtures.local import new_name
from testcluster.cluster import Cluster
from testcluster.image import POD_IMAGES
from testcluster.network import NODE_ADDRESS
from testcluster.policies import Unsupported, ruleset

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.access import Access
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.pool.providers.kubernetes.view import PORT

BASE = Path(__file__).parents[2] / "deploy" / "base"
SANDBOXES, WORKERS = "emberpool-sandboxes", "emberpool"
KNOCK = """
import socket
for host, port in PLACES:
    try:
        socket.create_connection((host, port), 0.7).close()
        print(host, port, "open")
    except OSError as error:
        print(host, port, "shut")
"""
METADATA = "169.254.169.254"


@pytest.fixture(scope="module")
def policed(cluster: ClusterUp) -> Iterator[Cluster]:
    """The namespaces and policies of the base, and a pod that is labelled as a worker; all goes with the module."""
    own = cluster.own
    if own is None:
        pytest.skip("rules are set on a node of our own only")
    texts = [(BASE / f"{name}.yaml").read_text() for name in ("namespaces", "network")]
    own.apply([*(one for text in texts for one in yaml.safe_load_all(text)), _worker()])
    own.kubectl("wait", "--for=condition=Ready", "pod/worker", "--namespace", WORKERS, "--timeout=60s")
    yield own
    own.rules.remove()
    own.kubectl("delete", "namespace", SANDBOXES, WORKERS)


@pytest.fixture
async def site(policed: Cluster) -> AsyncIterator[KubernetesSite]:
    """Sandboxes in the namespace of the policies."""
    access = Access(kubeconfig=str(policed.api.kubeconfig), namespace=SANDBOXES)
    made = KubernetesSite(ClusterUp(access, policed))
    yield made
    policed.rules.remove()
    await made.aclose()


@pytest.mark.cluster
async def test_a_sandbox_reaches_nobody(site: KubernetesSite, policed: Cluster) -> None:
    """UKGovernmentBEIS/inspect_k8s_sandbox#214: a job that shares its pod's network reaches neither servers beside the
    cluster (where the API server, Redis and Temporal are), nor the metadata address, nor the kubelet, nor another
    sandbox; all but the metadata address were open before the policies were enforced. Workers reach emberd all the
    time, and nothing else of the pod; and there is no token to be found."""
    provider = site.make(network="open")
    first, second = await _ready(provider), await _ready(provider)
    kubelet = json.loads(policed.kubectl("get", "node", "real", "-o", "json"))["status"]["daemonEndpoints"]
    async with _server() as port:
        inside = [
            (NODE_ADDRESS, port),
            (NODE_ADDRESS, kubelet["kubeletEndpoint"]["Port"]),
            (second[1], PORT),
            (METADATA, 80),
        ]
        knock = f"PLACES = {inside!r}\n{KNOCK}"
        job = f"python3 - <<'END'\n{knock}END\nls /var/run/secrets 2>&1; env"
        before = await site.job(first[0], job)
        assert [line.split()[2] for line in before.splitlines()[:4]] == ["open", "open", "open", "shut"], before
        policed.rules.apply()
        after = await site.job(first[0], job)
        assert [line.split()[2] for line in after.splitlines()[:4]] == ["shut"] * 4, after
        assert "token" not in after.lower() and "KUBERNETES" not in after
        from_worker = f"PLACES = {[(first[1], PORT), (first[1], 22), (NODE_ADDRESS, port)]!r}\n{KNOCK}"
        said = await asyncio.to_thread(
            policed.kubectl, "exec", "--namespace", WORKERS, "worker", "--", "python3", "-c", from_worker
        )
        assert [line.split()[2] for line in said.splitlines()] == ["open", "shut", "open"], said


async def _ready(provider: KubernetesProvider) -> tuple[PodName, str]:
    """Name and address of a new pod."""
    name = new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 60)
    assert facts.phase is Phase.READY, facts
    return name, facts.endpoint.removeprefix("http://").rpartition(":")[0]


@asynccontextmanager
async def _server() -> AsyncGenerator[int]:
    """Something that listens beside the cluster, where its pods reach it."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), NODE_ADDRESS, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _worker() -> dict[str, object]:
    spec = {
        "containers": [{"name": "worker", "image": POD_IMAGES[0], "command": ["sleep", "600"]}],
        "nodeSelector": {"kubernetes.io/hostname": "real"},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    labels = {"app.kubernetes.io/name": "emberpool-worker"}
    about = {"name": "worker", "namespace": WORKERS, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def test_a_policy_that_is_not_understood_is_refused() -> None:
    """Rather than enforced as something else: an address range, an expression, a rule for anybody."""
    to_all = [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]
    policy: dict[str, Any] = {
        "metadata": {"namespace": "a"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": to_all},
    }
    with pytest.raises(Unsupported, match="ipBlock"):
        ruleset([policy], [], {"a": {"metadata": {}}})
    policy["spec"] = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    with pytest.raises(Unsupported, match="anybody"):
        ruleset([policy], [], {"a": {"metadata": {}}})
    policy["spec"] = {"podSelector": {"matchExpressions": []}, "policyTypes": ["Ingress"]}
    with pytest.raises(Unsupported, match="matchExpressions"):
        ruleset([policy], [{"metadata": {"namespace": "a"}, "spec": {}, "status": {"podIP": "10.0.0.1"}}], {})
