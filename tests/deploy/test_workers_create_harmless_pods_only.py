"""deploy/base's admission policy on a real API server: what a worker's account may create, and what by no means."""

import asyncio
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.cluster import ClusterUp
from fixtures.waiting import wait_until
from testcluster.cluster import Cluster

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.pod_spec import manifest

BASE = Path(__file__).parents[2] / "deploy" / "base"
SANDBOXES, WORKERS = "emberpool-sandboxes", "emberpool"
ACCOUNT = f"system:serviceaccount:{WORKERS}:emberpool-worker"
AS_WORKER = (
    "--as",
    ACCOUNT,
    *(f"--as-group=system:{one}" for one in (f"serviceaccounts:{WORKERS}", "serviceaccounts")),
)
"""With the groups that its token gives it."""
POLICY = "emberpool-pods-of-workers"
TRY = ("create", "--dry-run=server", "--namespace", SANDBOXES, "-f", "-")
DENIED = rf"[Ff]orbidden.*'{POLICY}' with binding '{POLICY}' denied request: "
pytestmark = pytest.mark.cluster

SWEPT: dict[str, Any] = {"least_tier": "sweep", "network": "open"}
GVISOR: dict[str, Any] = {"boundary": "gvisor", "runtime_class": "gvisor", "scratch_mb": 64}
PROFILES: dict[str, dict[str, Any]] = {
    "rooms": {},
    "open network": {"network": "open"},
    "gvisor": {"kubernetes": GVISOR},
    "gvisor without capabilities": {"kubernetes": GVISOR | {"ask_capabilities": False}, **SWEPT},
    "swept": {"kubernetes": {"ask_capabilities": False}, **SWEPT},
    "started anew": {"least_tier": "restart", "network": "open"},
    "TLS": {"kubernetes": {"tls_secret": "emberd-tls"}},
    "emberd mounted": {"kubernetes": {"emberd_image": "registry.example/emberd:1"}},
    "GPUs": {"kubernetes": {"gpu": {"resource": "nvidia.com/gpu", "count": 1}}},
    "queue": {
        "kubernetes": {
            "queue": {"cluster_queue": "emberpool", "keep": 0},
            "labels": {"kueue.x-k8s.io/queue-name": "emberpool"},
            "scheduler_name": "kai-scheduler",
            "priority_class": "emberpool-sandbox",
            "runtime_class": "runc",
            "image_pull_secrets": ["registry"],
            "node_selector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "cpu_limit": 2,
        }
    },
}
"""What the provider makes, one of each kind."""
CONTAINER = "spec.containers.0"
PROJECTED = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
FROM_SECRET = {"secretKeyRef": {"name": "other", "key": "a"}}
LOOPBACK = {"httpGet": {"host": "127.0.0.1", "port": 10250}}
ATTEMPTS: dict[str, tuple[str, Any, str]] = {
    "privileged": (f"{CONTAINER}.securityContext.privileged", True, "no privileged container"),
    "capability": (f"{CONTAINER}.securityContext.capabilities.add", ["SYS_PTRACE"], "no privileged container"),
    "host's users": ("spec.hostUsers", True, "no boundary"),
    "another runtime": ("spec.hostUsers", None, "no boundary"),
    "hostNetwork": ("spec.hostNetwork", True, "no namespace of the node"),
    "hostPID": ("spec.hostPID", True, "no namespace of the node"),
    "hostIPC": ("spec.hostIPC", True, "no namespace of the node"),
    "hostPort": (f"{CONTAINER}.ports", [{"containerPort": 7070, "hostPort": 7070}], "no namespace of the node"),
    "hostPath": ("spec.volumes.+", {"hostPath": {"path": "/"}}, "volumes are"),
    "another Secret": ("spec.volumes.+", {"secret": {"secretName": "other"}}, "volumes are"),
    "ConfigMap": ("spec.volumes.+", {"configMap": {"name": "other"}}, "volumes are"),
    "claim": ("spec.volumes.+", {"persistentVolumeClaim": {"claimName": "other"}}, "volumes are"),
    "projected token": ("spec.volumes.+", {"projected": PROJECTED}, "volumes are"),
    "mounted token": ("spec.automountServiceAccountToken", True, "no token"),
    "Secret as variable": (f"{CONTAINER}.env", [{"name": "A", "valueFrom": FROM_SECRET}], "variables are given"),
    "Secret as variables": (f"{CONTAINER}.envFrom", [{"secretRef": {"name": "other"}}], "variables are given"),
    "probe of the node": (f"{CONTAINER}.livenessProbe", LOOPBACK, "no probes"),
    "hook": (f"{CONTAINER}.lifecycle", {"postStart": LOOPBACK}, "no probes"),
    "no seccomp": ("spec.securityContext.seccompProfile.type", "Unconfined", "the kernel.s filters stay on"),
    "no seccomp of one": (
        f"{CONTAINER}.securityContext.seccompProfile",
        {"type": "Unconfined"},
        "the kernel.s filters stay on",
    ),
    "sysctl": (
        "spec.securityContext.sysctls",
        [{"name": "net.ipv4.ping_group_range", "value": "0 1"}],
        "the kernel.s filters",
    ),
    "node by name": ("spec.nodeName", "real", "the scheduler chooses"),
    "init container": (
        "spec.initContainers",
        [{"name": "first", "image": "x", "securityContext": {"privileged": True}}],
        "no privileged container",
    ),
}
"""Where the usual pod is changed (`+`: one more), by what, and which rule says no. It is gVisor's: where a pod has
`hostUsers: false` the API server itself refuses some of this, before it asks any policy."""


@pytest.fixture(scope="module")
def ruled(cluster: ClusterUp) -> Iterator[Cluster]:
    """The cluster with deploy/base applied, whose policy the API server has taken up; it goes with the module."""
    own = cluster.own
    if own is None:
        pytest.skip("namespaces are made in a cluster of our own only")
    own.fresh(WORKERS, SANDBOXES)
    own.kubectl("apply", "-k", str(BASE))
    asyncio.run(wait_until(lambda: _is_judged(own), 30))
    yield own
    own.kubectl("delete", "-k", str(BASE), "--wait=false")


@pytest.mark.parametrize("name", PROFILES)
def test_every_kind_of_pod_is_taken(ruled: Cluster, name: str) -> None:
    """Of each boundary, with TLS, GPUs, emberd mounted, in a queue: standing by or not."""
    for standby in (False, True):
        said = ruled.kubectl(*TRY, *AS_WORKER, stdin=json.dumps(_pod(standby=standby, **PROFILES[name])))
        assert "created (server dry run)" in said


@pytest.mark.parametrize("name", ATTEMPTS)
def test_what_reaches_further_is_refused(ruled: Cluster, name: str) -> None:
    """A way to the node, to a Secret or to a token: refused by the rule for it, for the worker's account."""
    path, value, why = ATTEMPTS[name]
    usual = _pod() if path == "spec.hostUsers" else _pod(kubernetes=GVISOR)
    pod = json.dumps(_changed(usual, path, value))
    with pytest.raises(RuntimeError, match=DENIED + why):
        ruled.kubectl(*TRY, *AS_WORKER, stdin=pod)


def test_other_accounts_are_left_alone(ruled: Cluster) -> None:
    """An administrator's pod of the node's network is no worker's."""
    pod = _changed(_pod(kubernetes=GVISOR), "spec.hostNetwork", True)
    pod = _changed(pod, f"{CONTAINER}.securityContext.privileged", True)
    assert "created" in ruled.kubectl(*TRY, stdin=json.dumps(pod))


def test_changes_are_judged_too(ruled: Cluster) -> None:
    """Ephemeral containers, though the role should ever name them; and the image of a pod of somebody else's that
    reaches the node. A pod of its own gets another image."""
    where = ("--namespace", SANDBOXES)
    role = ("--verb=get,patch", "--resource=pods,pods/ephemeralcontainers")
    mine, other = _pod("mine"), _changed(_pod("other", kubernetes=GVISOR), "spec.hostPID", True)
    for one in (mine, other):  # no node is to run them
        one["spec"]["nodeSelector"] = {"nowhere": "true"}
        ruled.kubectl("create", *where, "-f", "-", stdin=json.dumps(one))
    ruled.kubectl("create", "role", "more", *role, *where)
    ruled.kubectl(
        "create", "rolebinding", "more", "--role=more", f"--serviceaccount={WORKERS}:emberpool-worker", *where
    )
    image = json.dumps({"spec": {"containers": [{"name": mine["spec"]["containers"][0]["name"], "image": "x"}]}})
    added = json.dumps({"spec": {"ephemeralContainers": [{"name": "late", "image": "x"}]}})
    ruled.kubectl("patch", "pod", "mine", "-p", image, *where, *AS_WORKER)
    with pytest.raises(RuntimeError, match=DENIED + "no namespace of the node"):
        ruled.kubectl("patch", "pod", "other", "-p", image, *where, *AS_WORKER)
    with pytest.raises(RuntimeError, match=DENIED + "no ephemeral containers"):
        ruled.kubectl("patch", "pod", "mine", "--subresource=ephemeralcontainers", "-p", added, *where, *AS_WORKER)


def _pod(name: str = "tried", standby: bool = False, **fields: Any) -> dict[str, Any]:
    """A pod as the provider makes it."""
    about = {"name": "p", "provider": "kubernetes", "base_image": "registry.example/a:1", "limits": {"memory_mb": 64}}
    return manifest(Profile.model_validate(about | fields), "d", PodName(name), "", b"k" * 32, standby)


def _changed(pod: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy that differs in one place; None takes the field away."""
    made: Any = copy.deepcopy(pod)
    *parents, last = path.split(".")
    place = made
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    if last == "+":
        place.append({"name": "more", **value})
    elif value is None:
        place.pop(last)
    else:
        place[last] = value
    return dict(made)


async def _is_judged(own: Cluster) -> bool:
    """Whether the API server enforces the policy, which it takes up a moment after it was made."""
    try:
        own.kubectl(*TRY, *AS_WORKER, stdin=json.dumps(_changed(_pod(kubernetes=GVISOR), "spec.hostPID", True)))
    except RuntimeError as error:
        return POLICY in str(error)
    return False
