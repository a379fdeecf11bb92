"""deploy/base on a real API server: the worker's account can do what its provider does, and little else."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite
from fixtures.waiting import wait_until
from testcluster.cluster import Cluster

from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes import gangs
from emberpool.pool.providers.kubernetes.access import Access, ApiRefused, KubernetesApi

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = DEPLOY / "base"
SANDBOXES, WORKERS = "emberpool-sandboxes", "emberpool"
PLACES = (WORKERS, "default", "kube-system")
RIGHTS = DEPLOY / "components" / "gangs" / "rights.yaml"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
LABEL = "a" * 32
ACCOUNT = f"system:serviceaccount:{WORKERS}:emberpool-worker"
GROUPS = [f"system:serviceaccounts:{WORKERS}", "system:serviceaccounts", "system:authenticated"]
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def based(cluster: ClusterUp) -> Iterator[Cluster]:
    """The cluster with deploy/base applied; it goes with the module."""
    if cluster.own is None:
        pytest.skip("namespaces are made in a cluster of our own only")
    cluster.own.fresh(WORKERS, SANDBOXES)
    cluster.own.kubectl("apply", "-k", str(BASE))
    yield cluster.own
    cluster.own.kubectl("delete", "-k", str(BASE), "--wait=false")


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
    assert _is_allowed(based, verb, resource, namespace) == (False, "")


@pytest.mark.parametrize(
    ("verb", "resource"),
    [*((verb, "pods") for verb in ("get", "list", "watch", "create", "patch", "delete")), ("patch", "pods/resize")],
)
def test_what_it_does_is_allowed(based: Cluster, verb: str, resource: str) -> None:
    """The same question, asked for what the provider calls, is answered yes; elsewhere it is not."""
    assert _is_allowed(based, verb, resource, SANDBOXES) == (True, "")
    assert _is_allowed(based, verb, resource, "default") == (False, "")


def _is_allowed(based: Cluster, verb: str, resource: str, namespace: str) -> tuple[bool, str]:
    """What the API server says of the account, and what kept it from saying so."""
    kind, _, part = resource.partition("/")
    group = "rbac.authorization.k8s.io" if kind == "rolebindings" else ""
    group = "networking.k8s.io" if kind == "networkpolicies" else group
    asked = {"verb": verb, "group": group, "resource": kind, "subresource": part, "namespace": namespace}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    spec = {"user": ACCOUNT, "groups": GROUPS, "resourceAttributes": asked}
    said = based.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps({**review, "spec": spec}))
    status = json.loads(said)["status"]
    return status["allowed"], status.get("evaluationError", "")


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


async def test_gangs_take_a_component_and_get_no_more(
    site: KubernetesSite, based: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the worker's own token. Without deploy/components/gangs its call names what to apply; with it a pod is put
    into a gang and taken out, and the policy is swept. Policies can still be neither read one by one nor changed, nor
    touched in another namespace."""
    monkeypatch.setattr(gangs, "YOUNG_S", -60.0)
    name, api = PodName("rights-3"), KubernetesApi(site.access)
    mine = gangs.Gangs(api, site.kubernetes.profile.name, site.deployment)
    try:
        await site.kubernetes.create(name, "")
        with pytest.raises(InvalidInput, match=r"apply deploy/components/gangs \(403 Forbidden: .* cannot create "):
            await mine.join(name, LABEL, _holds)
        with pytest.raises(PoolUnavailable, match="cannot list resource"):
            await mine.sweep()
        await asyncio.to_thread(based.kubectl, "apply", "-k", str(_with_gangs(tmp_path)))
        await wait_until(lambda: _may(api), 30)
        for _ in range(2):
            await mine.join(name, LABEL, _holds)
        assert (await _labels(api, name))[gangs.GANG_LABEL] == LABEL
        for method, path, query in _beyond_gangs():
            with pytest.raises(ApiRefused) as caught:
                await api.call(method, path, query=query, body={} if method in ("POST", "PUT", "PATCH") else None)
            assert (caught.value.status, caught.value.reason) == (403, "Forbidden"), (method, path, caught.value)
        await mine.leave(name, 1)
        assert gangs.GANG_LABEL not in await _labels(api, name)
        assert await mine.sweep() == 1
        assert (await api.call("GET", POLICIES.format(SANDBOXES), query={"labelSelector": gangs.GANG_LABEL}))[
            "items"
        ] == []
    finally:
        await asyncio.to_thread(based.kubectl, "delete", "--ignore-not-found", "-f", str(RIGHTS))
        await api.aclose()


def _with_gangs(folder: Path) -> Path:
    """The base with the component, as an overlay of a user's own has it."""
    paths = {"resources": BASE, "components": RIGHTS.parent}
    overlay = {key: [os.path.relpath(path, folder)] for key, path in paths.items()}
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    return folder


def _beyond_gangs() -> list[tuple[str, str, dict[str, str]]]:
    """Calls that a worker with the component has no use for."""
    here, one = POLICIES.format(SANDBOXES), f"{POLICIES.format(SANDBOXES)}/emberpool-gang-{LABEL}"
    changes = [(method, one, dict[str, str]()) for method in ("GET", "PUT", "PATCH")]
    elsewhere = [(method, POLICIES.format(where), dict[str, str]()) for method in ("GET", "POST") for where in PLACES]
    return [
        *changes,
        *elsewhere,
        ("DELETE", here, {}),
        ("GET", here, {"watch": "true"}),
        ("DELETE", f"{POLICIES.format(WORKERS)}/metrics", {}),
        ("GET", "/apis/networking.k8s.io/v1/networkpolicies", {}),
        ("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SANDBOXES}/roles", {}),
        ("POST", f"/apis/networking.k8s.io/v1/namespaces/{SANDBOXES}/ingresses", {}),
    ]


async def _holds() -> None:
    """The lease does."""


async def _may(api: KubernetesApi) -> bool:
    """Whether the API server has taken the component up."""
    asked = {"namespace": SANDBOXES, "verb": "create", "group": "networking.k8s.io", "resource": "networkpolicies"}
    review: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review["spec"] = {"resourceAttributes": asked}
    said = await api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    return bool(said["status"]["allowed"])


async def _labels(api: KubernetesApi, name: PodName) -> dict[str, str]:
    pod = await api.call("GET", f"/api/v1/namespaces/{SANDBOXES}/pods/{name}")
    return dict(pod["metadata"]["labels"])
