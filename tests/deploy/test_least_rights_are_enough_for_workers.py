"""deploy/base on a real API server: the worker's account can do what its provider does, and little else."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite
from testcluster.cluster import Cluster

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.access import Access

BASE = Path(__file__).parents[2] / "deploy" / "base"
SANDBOXES, WORKERS = "emberpool-sandboxes", "emberpool"
ACCOUNT = f"system:serviceaccount:{WORKERS}:emberpool-worker"
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def based(cluster: ClusterUp) -> Iterator[Cluster]:
    """The cluster with deploy/base applied; it goes with the module."""
    if cluster.own is None:
        pytest.skip("namespaces are made in a cluster of our own only")
    cluster.own.kubectl("apply", "-k", str(BASE))
    yield cluster.own
    cluster.own.kubectl("delete", "-k", str(BASE))


@pytest.fixture
async def site(based: Cluster, tmp_path: Path) -> AsyncIterator[KubernetesSite]:
    """Pods made with the worker's own token."""
    config = json.loads(based.api.kubeconfig.read_text())
    token = based.kubectl("create", "token", "emberpool-worker", "--namespace", WORKERS).strip()
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    made = KubernetesSite(ClusterUp(Access(kubeconfig=str(path), namespace=SANDBOXES), based))
    yield made
    await made.aclose()


async def test_a_pods_whole_life(site: KubernetesSite) -> None:
    """Created on standby, seen, promoted by a resize, given another image, listed and deleted: no call is refused."""
    provider, name = site.kubernetes, PodName("rights-1")
    await provider.create(name, "", standby=True)
    assert (await provider.wait_ready(name, 60)).phase is Phase.READY
    assert await provider.promote(name) == ""
    assert await provider.swap(name, "second", 1) == ""
    assert [facts.name for facts in await provider.list()] == [name]
    await provider.delete(name)
    assert await provider.list() == []


@pytest.mark.parametrize(
    ("verb", "resource", "namespace"),
    [
        ("update", "pods", SANDBOXES),
        ("deletecollection", "pods", SANDBOXES),
        ("get", "secrets", SANDBOXES),
        ("get", "pods", WORKERS),
        ("create", "pods", "default"),
        ("get", "nodes", SANDBOXES),
        ("create", "pods/exec", SANDBOXES),
        ("create", "pods/attach", SANDBOXES),
        ("create", "pods/portforward", SANDBOXES),
        ("create", "pods/eviction", SANDBOXES),
        ("patch", "pods/ephemeralcontainers", SANDBOXES),
        ("patch", "pods/status", SANDBOXES),
        ("get", "pods/log", SANDBOXES),
        ("get", "secrets", WORKERS),
        ("get", "configmaps", WORKERS),
        ("create", "serviceaccounts/token", WORKERS),
        ("create", "serviceaccounts/token", SANDBOXES),
        ("impersonate", "serviceaccounts", WORKERS),
        ("create", "rolebindings", SANDBOXES),
        ("patch", "networkpolicies", SANDBOXES),
        ("create", "networkpolicies", SANDBOXES),
        ("get", "nodes/proxy", ""),
        ("list", "namespaces", ""),
    ],
)
def test_what_it_does_not_do_is_refused(based: Cluster, verb: str, resource: str, namespace: str) -> None:
    """The API server says no to the account for verbs, kinds and namespaces that the provider has no use for."""
    kind, _, part = resource.partition("/")
    where = [f"--namespace={namespace}"] if namespace else []
    words = ["auth", "can-i", verb, kind, f"--subresource={part}", *where, "--as", ACCOUNT]
    with pytest.raises(RuntimeError):  # kubectl exits 1 for "no"
        based.kubectl(*words)


async def test_a_worker_that_was_taken_over_gets_no_further(site: KubernetesSite, based: Cluster) -> None:
    """Tried, not asked: with the account's rights there is no way into a sandbox or to its log past emberd, to a token,
    a secret, a node or another namespace; each attempt is refused as forbidden."""
    provider, name = site.kubernetes, PodName("rights-2")
    await provider.create(name, "")
    assert (await provider.wait_ready(name, 60)).phase is Phase.READY
    where = ("--namespace", SANDBOXES)
    attempts = [
        ("exec", name, *where, "--", "true"),
        ("logs", name, *where),
        ("create", "token", "default", *where),
        ("create", "token", "emberpool-worker", "--namespace", WORKERS),
        ("get", "secrets", "--all-namespaces"),
        ("get", "nodes"),
        ("get", "--raw", "/api/v1/nodes/real/proxy/pods"),
        ("get", "pods", "--all-namespaces"),
        ("run", "other", "--image", "x", "--namespace", WORKERS),
        ("create", "rolebinding", "more", "--clusterrole=cluster-admin", f"--user={ACCOUNT}", *where),
    ]
    for words in attempts:
        with pytest.raises(RuntimeError, match="[Ff]orbidden"):
            based.kubectl(words[0], "--as", ACCOUNT, *words[1:])


def test_sandboxes_reach_nothing(based: Cluster) -> None:
    """Every pod of the namespace is chosen by a policy that allows neither way."""
    policy = json.loads(based.kubectl("get", "networkpolicy", "deny-all", "--namespace", SANDBOXES, "-o", "json"))
    assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
