"""Kueue's queue as the observer sees it: on the controller itself, and what a workload counts for."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fixtures.cluster import ClusterUp
from fixtures.kubernetes_pool import cluster_profile, kubernetes_pool
from fixtures.waiting import wait_until
from testcluster.cluster import Cluster
from testcluster.kueue import kueue

from emberpool.activities import names, queue_share
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.providers.kubernetes.access import KubernetesApi
from emberpool.pool.providers.kubernetes.injection import EMBERD
from emberpool.pool.providers.kubernetes.queue import KueueQueue, QueueFacts, facts
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.workflows.pool_manager import PoolStatus

GIB = float(1 << 30)
VERSION = "kueue.x-k8s.io/v1beta2"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def queued(cluster: ClusterUp) -> Iterator[Cluster]:
    """The cluster with Kueue and a queue of 2 cores and 4 GiB that the namespace `default` has a way into."""
    if cluster.own is None:
        pytest.skip("Kueue is started in a cluster of our own only")
    with kueue(cluster.own):
        cluster.own.apply([_flavor(), _cluster_queue(), _local_queue()])
        yield cluster.own
        cluster.own.kubectl("delete", "jobs", "--all", "--cascade=foreground")


@pytest.mark.cluster
async def test_waiting_work_is_counted_by_what_it_asks_for(queued: Cluster, cluster: ClusterUp) -> None:
    """Three jobs of one core and a queue of two: one waits, for its core and its memory. A pod of ours that waits too
    is none of the demand. When a job goes, the one that waited has quota and nothing waits any more."""
    queued.apply([_job(name) for name in ("one", "two", "three")])
    api = KubernetesApi(cluster.access)
    queue = KueueQueue(api, "shared")
    try:
        await wait_until(lambda: _is(queue, waiting=1, reserved=2.0), 60)
        queued.apply([_ours()])
        await wait_until(lambda: _is_pending(queued, 2), 60)
        seen = await queue.look()
        assert (seen.waiting, seen.wanted) == (1, {"cpu": 1.0, "memory": 0.5 * GIB})
        assert seen.quota == {"cpu": 2.0, "memory": 4 * GIB}
        assert seen.reserved_by_us == {}
        await asyncio.to_thread(queued.kubectl, "delete", "workload", "ours")
        await asyncio.to_thread(queued.kubectl, "delete", "job", "one", "--cascade=foreground")
        await wait_until(lambda: _is(queue, waiting=0, reserved=2.0), 60)
    finally:
        await asyncio.to_thread(queued.kubectl, "delete", "jobs", "--all", "--cascade=foreground")
        await api.aclose()


@pytest.mark.cluster
async def test_a_pool_makes_way_for_what_waits(
    queued: Cluster, cluster: ClusterUp, stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four warm pods of a tenth of a core, and a queue of two cores. A job takes 1.8 of them, and leaves the pool two
    pods; a second one waits for a core, and leaves it what it keeps whatever waits. As the jobs go, the pool grows to
    its budget again, which never changed."""
    monkeypatch.setattr(queue_share, "LOOK_S", 0.5)
    about: Json = {"cpu": 0.1, "queue": {"cluster_queue": "shared", "keep": 1}}
    of = cluster_profile(min_warm=4, max_pods=4, kubernetes=about)
    async with kubernetes_pool(stack, cluster.access, of) as site:
        handle = site.client.get_workflow_handle(names.pool_manager_id(site.settings.deployment, of.name))

        async def holds(pods: int) -> bool:
            counts, told = await site.index.counts(), await handle.query(names.POOL_STATUS, result_type=PoolStatus)
            assert told.max_pods == 4, "the budget is a person's"
            held = sum(counts.by_state.values())
            return (held, counts.ceiling) == (pods, pods) and min(told.queue_share or 0, 4) == pods

        await wait_until(lambda: holds(4), 60)
        queued.apply([_job("large", "1800m")])
        await wait_until(lambda: holds(2), 60)
        queued.apply([_job("waits", "1")])
        await wait_until(lambda: holds(1), 60)
        await asyncio.to_thread(queued.kubectl, "delete", "job", "waits", "--cascade=foreground")
        await wait_until(lambda: holds(2), 60)
        await asyncio.to_thread(queued.kubectl, "delete", "job", "large", "--cascade=foreground")
        await wait_until(lambda: holds(4), 60)


@pytest.mark.cluster
async def test_a_queue_that_is_not_there_is_named(queued: Cluster, cluster: ClusterUp) -> None:
    """Rather than taken for an empty one."""
    api = KubernetesApi(cluster.access)
    try:
        with pytest.raises(PoolUnavailable, match=r"queue other cannot be read: 404"):
            await KueueQueue(api, "other").look()
    finally:
        await api.aclose()


def test_only_what_waits_at_this_queue_counts() -> None:
    """Not what is over, switched off or in another queue; what has quota counts for ours alone. Several pods count
    several times, a first container only where it asks for more, a limit where there is no request."""
    local = [_local_queue(), _local_queue("elsewhere", "another")]
    over = [{"type": "Finished", "status": "True"}]
    held = [{"type": "QuotaReserved", "status": "True"}]
    big = _pod("4", initContainers=[{"name": "first", "resources": {"requests": {"cpu": "16"}}}], overhead={"cpu": "1"})
    workloads = [
        _workload("a", _pod("500m"), count=3),
        _workload("b", big),
        _workload("c", {"containers": [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}),
        _workload("over", _pod("100"), conditions=over),
        _workload("off", _pod("100"), active=False),
        _workload("other", _pod("100"), queue="elsewhere"),
        _workload("lost", _pod("100"), queue="nowhere"),
        _workload("has", _pod("100"), conditions=held),
        _workload("ours_waits", _pod("100", command=["python3", EMBERD])),
        _workload("ours", _pod("1500m", command=["python3", EMBERD]), conditions=held),
    ]
    status: Json = {"flavorsReservation": [{"name": "f", "resources": [{"name": "cpu", "total": "1500m"}]}]}
    seen = facts(_cluster_queue() | {"status": status}, local, workloads)
    assert seen == QueueFacts(
        waiting=3,
        wanted={"cpu": 1.5 + 17, "nvidia.com/gpu": 2.0},
        quota={"cpu": 2.0, "memory": 4 * GIB},
        reserved={"cpu": 1.5},
        reserved_by_us={"cpu": 1.5},
    )


async def _is(queue: KueueQueue, waiting: int, reserved: float) -> bool:
    seen = await queue.look()
    return (seen.waiting, seen.reserved.get("cpu")) == (waiting, reserved)


async def _is_pending(cluster: Cluster, count: int) -> bool:
    path = "jsonpath={.status.pendingWorkloads}"
    return await asyncio.to_thread(cluster.kubectl, "get", "clusterqueue", "shared", "-o", path) == str(count)


def _flavor() -> Json:
    return {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}


def _cluster_queue() -> Json:
    quotas = [{"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "4Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": quotas}]}
    spec: Json = {"namespaceSelector": {}, "resourceGroups": [group]}
    return {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": "shared"},
        "spec": spec,
    }


def _local_queue(name: str = "line", to: str = "shared") -> Json:
    about = {"name": name, "namespace": "default"}
    return {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": about,
        "spec": {"clusterQueue": to},
    }


def _pod(cpu: str, command: list[str] | None = None, **more: Any) -> Json:
    container: Json = {"name": "x", "image": "registry.example/x:1", "resources": {"requests": {"cpu": cpu}}}
    if command:
        container["command"] = command
    return {"containers": [container], **more}


def _job(name: str, cpu: str = "1") -> Json:
    """Of `cpu` cores and half a gibibyte; its pod finds no node, so that it keeps its quota until it is deleted."""
    pod = _pod(cpu)
    pod["containers"][0]["resources"]["requests"]["memory"] = "512Mi"
    pod["restartPolicy"] = "Never"
    pod["nodeSelector"] = {"kubernetes.io/hostname": "none"}
    about = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "line"}}
    spec = {"suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


def _workload(
    name: str, pod: Json, count: int = 1, queue: str = "line", active: bool = True, conditions: list[Json] | None = None
) -> Json:
    sets = [{"name": "main", "count": count, "template": {"spec": pod}}]
    return {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": queue, "active": active, "podSets": sets},
        "status": {"conditions": conditions or []},
    }


def _ours() -> Json:
    """As Kueue makes one for a pod of emberpool's."""
    workload = _workload("ours", _pod("1", command=["python3", "-I", EMBERD]))
    del workload["status"]
    workload["spec"]["podSets"][0]["template"]["spec"]["restartPolicy"] = "Never"
    return workload
