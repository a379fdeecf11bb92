"""Many pods on the API server of the test cluster: how fast a pool fills, what its watch costs, how far it lags.

The API server, etcd and scheduler are real; nodes and kubelets are simulated by kwok, whose pods run at once. No emberd
is in them: what is measured is the provider's watch, the calls that create and delete, and how soon the pool's index
(a real Redis) knows of a pod that failed; not pods that work.

    make cluster && PYTHONPATH=deploy .venv/bin/python -P benchmarks/pods_at_scale.py --pods 5000
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

from index_sync import lags
from testcluster.cluster import Cluster
from testcluster.folders import built
from testcluster.objects import FAKE

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.access import Access, ApiRefused, KubernetesApi
from emberpool.pool.providers.kubernetes.pod_spec import POOL_LABEL, manifest
from emberpool.pool.providers.kubernetes.view import PodView
from emberpool.pool.providers.kubernetes.watch import PodWatch

PODS = "/api/v1/namespaces/default/pods"
AT_ONCE, CONFLICT, GONE = 16, 409, 404
MARKS = 200
"""Pods that are patched one by one, to see when the watch hears of it."""
PROGRAMS = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kwok")
FAILING = 100
"""Pods that fail one by one, and as many at once, to see when the index hears of it."""
PROFILE = Profile.model_validate(
    {
        "name": "scale",
        "provider": "kubernetes",
        "images": {"base": "registry.example/none:1"},
        "limits": {"memory_mb": 64},
        "kubernetes": {
            "cpu": 0.01,
            "node_selector": {"type": "kwok"},
            "tolerations": [{"key": FAKE, "operator": "Exists", "effect": "NoSchedule"}],
        },
    }
)


def rss_mb() -> float:
    """Memory of this process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def cpu_s(cluster: Cluster, program: str) -> float:
    """Processor time of one of the cluster's programs since its start."""
    fields = Path(f"/proc/{cluster.processes.pid(program)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def program_rss_mb(cluster: Cluster, program: str) -> float:
    """Memory of one of them now."""
    pages = int(Path(f"/proc/{cluster.processes.pid(program)}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def measure(cluster: Cluster, pods: int) -> dict[str, float]:
    """Fill, watch, mark, empty."""
    access = Access(kubeconfig=str(cluster.api.kubeconfig), namespace="default")
    api = KubernetesApi(access)
    seen: set[PodName] = set()
    running: set[PodName] = set()
    marked: dict[str, asyncio.Future[float]] = {}
    news = asyncio.Event()

    async def until(done: Callable[[], bool]) -> None:
        while not done():
            news.clear()
            await news.wait()

    def heard(name: PodName, pod: PodView | None) -> None:
        if pod is not None and pod.node:
            seen.add(name)
        if pod is not None and pod.running:
            running.add(name)
        if pod is not None and pod.image in marked and not marked[pod.image].done():
            marked[pod.image].set_result(time.monotonic())

        news.set()

    watch = PodWatch(api, f"{POOL_LABEL}={PROFILE.name}", heard)
    await watch.started()
    programs = {name: cpu_s(cluster, name) for name in PROGRAMS}
    before_mb, cpu_before, began = rss_mb(), time.process_time(), time.monotonic()

    async def create(number: int) -> None:
        body = manifest(PROFILE, "scale", PodName(f"scale-{number}"), "", b"k" * 32, False)
        try:
            await api.call("POST", PODS, body=body)
        except ApiRefused as error:
            if error.status != CONFLICT:  # left by a run that was broken off
                raise

    figures: dict[str, float] = {"pods": pods}
    await spread(pods, create)
    figures["created_s"] = time.monotonic() - began
    await until(lambda: len(seen) == pods)
    figures["all_seen_on_nodes_s"] = time.monotonic() - began
    await until(lambda: len(running) == pods)
    figures["all_seen_running_s"] = time.monotonic() - began
    figures["watch_and_create_cpu_s"] = time.process_time() - cpu_before
    figures |= {f"{name}_cpu_s": cpu_s(cluster, name) - before for name, before in programs.items()}
    figures["kube_apiserver_rss_mb"] = program_rss_mb(cluster, "kube-apiserver")
    figures["worker_rss_before_mb"], figures["worker_rss_after_mb"] = before_mb, rss_mb()
    waits = sorted([await lag(api, marked, f"scale-{number}") for number in range(min(MARKS, pods))])
    figures["lag_p50_ms"], figures["lag_p99_ms"] = (1000 * waits[int(len(waits) * share)] for share in (0.5, 0.99))
    listing = time.monotonic()
    await watch.listed()
    figures["full_list_s"] = time.monotonic() - listing
    names = [PodName(f"scale-{number}") for number in range(pods)]
    figures |= await lags(api, access, PROFILE, names, min(FAILING, pods // 2))
    emptying = time.monotonic()

    async def delete(number: int) -> None:
        try:
            await api.call("DELETE", f"{PODS}/scale-{number}", body={"gracePeriodSeconds": 0})
        except ApiRefused as error:
            if error.status != GONE:  # one that failed, which the tending of the pool has deleted
                raise

    await spread(pods, delete)
    await until(lambda: not watch.pods)
    figures["emptied_s"] = time.monotonic() - emptying
    await watch.aclose()
    await api.aclose()
    return figures


async def lag(api: KubernetesApi, marked: "dict[str, asyncio.Future[float]]", name: str) -> float:
    """Seconds from a write's answer to the watch's word of it; 0 if the watch was first."""
    mark = f"mark-{name}"
    marked[mark] = asyncio.get_running_loop().create_future()
    patch = {"metadata": {"annotations": {"emberpool.dev/image": mark}}}
    await api.call("PATCH", f"{PODS}/{name}", body=patch, content="application/merge-patch+json")
    answered = time.monotonic()
    return max(0.0, await marked[mark] - answered)


async def spread(pods: int, act: Callable[[int], Coroutine[object, object, None]]) -> None:
    """Act on each number, some at once."""
    numbers = count()

    async def work() -> None:
        while (number := next(numbers)) < pods:
            await act(number)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def writes_per_pod(cluster: Cluster, pods: int) -> float:
    """Writes about these pods by anybody, from the audit log, for each of them."""
    lines = (json.loads(line) for line in cluster.api.audit_log.read_text().splitlines())
    verbs = ("create", "update", "patch", "delete")
    return (
        sum("/pods" in line["requestURI"] and "scale-" in _about(line) for line in lines if line["verb"] in verbs)
        / pods
    )


def _about(line: dict[str, object]) -> str:
    return f"{line['requestURI']} {line.get('objectRef')}"


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    pods: int = parser.parse_args().pods
    cluster = Cluster(built())
    if not cluster.is_up:
        raise SystemExit("no test cluster is up: `make cluster`")
    figures = asyncio.run(measure(cluster, pods))
    ours = min(MARKS, pods) + 2 * min(FAILING, pods // 2)  # patches that only the measurement makes
    figures["writes_per_pod_life"] = writes_per_pod(cluster, pods) - ours / pods
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
