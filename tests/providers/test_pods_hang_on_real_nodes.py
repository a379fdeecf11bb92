"""Pods that hang while Kubernetes calls them Running, on the test cluster: told soon, and deleted."""

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite, pids_in_cgroup
from fixtures.kubernetes_pool import CALLER, PROFILE, cluster_profile, kubernetes_pool
from fixtures.local import new_name
from fixtures.stack import Site
from fixtures.waiting import wait_until
from testcluster.cluster import Cluster
from testcluster.objects import FAKE

from emberpool.activities import silence
from emberpool.pool.client import emberd_client
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import SandboxLost
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.kubernetes import silent_nodes
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.cluster
SOON_S = 30.0
SIMULATED = 3


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of waiting become one."""
    for name, value in (("ANSWER_S", 2.0), ("AGAIN_S", 1.0), ("SILENT_S", 3.0)):
        monkeypatch.setattr(emberd_client, name, value)
    for name, value in (("ANSWER_S", 2.0), ("AGAIN_S", 0.5), ("PAUSE_S", 1.0), ("SILENT_S", 3.0), ("ALONE_S", 6.0)):
        monkeypatch.setattr(silent_nodes, name, value)
    for name, value in (("ANSWER_S", 2.0), ("AGAIN_S", 0.5), ("SILENT_S", 4.0)):
        monkeypatch.setattr(silence, name, value)


@contextmanager
def frozen(*pids: int) -> Generator[None]:
    """They stand still for as long as the block lasts."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def test_whose_command_hangs_with_its_pod_hears_of_it(stack: EmbeddedStack, cluster: ClusterUp) -> None:
    """All that runs in the pod is stopped, and its kubelet goes on calling it Running: SandboxLost soon, the pod is
    deleted from the cluster, and another takes its place."""
    if cluster.own is None:
        pytest.skip("processes are stopped on a node of our own only")
    async with kubernetes_pool(stack, cluster.access, cluster_profile(min_warm=2)) as site:
        calling = asyncio.create_task(call(site, "sleep 300"))
        name, uid = await leased(site)
        for pid in pids_in_cgroup(uid):
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(SandboxLost) as caught:
            await calling
        assert time.monotonic() - began < SOON_S
        assert (caught.value.reason, caught.value.executed) == ("silent", "unknown")

        async def replaced() -> bool:
            idle = {pod.name for pod in await site.index.pods(PodState.IDLE, 10)}
            served = len(idle) == 2 and name not in idle
            return served and name not in await asyncio.to_thread(cluster_pods, cluster.own)

        await wait_until(replaced, 60)


async def test_nodes_that_go_silent(kubernetes_site: KubernetesSite, cluster: ClusterUp) -> None:
    """The kubelet hangs, and so does all that keeps the simulated nodes: the control plane calls each node not ready.
    A pod whose emberd serves on is let on as if nothing were; of one that hangs too it is told that it is lost with its
    node, as of every pod of the simulated node, which has no emberd. They are deleted once their nodes are back."""
    own = cluster.own
    if own is None:
        pytest.skip("nodes are stopped on a machine of our own only")
    real, serves, hangs = kubernetes_site.kubernetes, new_name(), new_name()
    for name in (serves, hangs):
        await real.create(name, "")
        assert (await real.wait_ready(name, 60)).phase is Phase.READY
    simulated = kubernetes_site.make(
        kubernetes={
            "node_selector": {"kubernetes.io/hostname": "fake-0"},
            "tolerations": [{"key": FAKE, "operator": "Exists"}],
            "starting_at_once": SIMULATED,
        }
    )
    theirs = await some(simulated, own)
    uid = (await real.wait_ready(hangs, 0)).uid
    stopped = [own.processes.pid("kubelet"), own.processes.pid("kwok"), *pids_in_cgroup(uid)]
    with frozen(*stopped), own.hasty():
        await asyncio.to_thread(last_word, own, "fake-0")
        await wait_until(lambda: lost(real, [hangs]), 60)
        assert (await real.wait_ready(hangs, 0)).reason.startswith("node_lost: real is not ready")
        assert (await real.wait_ready(serves, 0)).phase is Phase.READY
        assert await kubernetes_site.job(serves, "echo on") == "on\n"
        await wait_until(lambda: lost(simulated, theirs), 30)
        assert (await simulated.wait_ready(theirs[0], 0)).reason.startswith("node_lost: fake-0 is not ready")
        deleting = asyncio.create_task(real.delete(hangs))
        done, _ = await asyncio.wait({deleting}, timeout=1.0)
        assert not done, "its kubelet alone can tell that it is gone"
    await asyncio.wait_for(deleting, 60)
    assert await kubernetes_site.job(serves, "echo on") == "on\n"
    # Nothing of them is anywhere but in the API; kwok takes a while to hear again.
    await asyncio.to_thread(own.kubectl, "delete", "pods", *theirs, "--force", "--grace-period=0")


async def some(provider: KubernetesProvider, own: Cluster) -> list[PodName]:
    """Pods of a simulated node: they run, for all that the API server knows."""
    names = [new_name() for _ in range(SIMULATED)]
    for name in names:
        await provider.create(name, "")

    async def run() -> bool:
        there = await asyncio.to_thread(cluster_pods, own)
        return all(there.get(name) == "Running" for name in names)

    await wait_until(run, 60)
    return names


async def lost(provider: KubernetesProvider, names: list[PodName]) -> bool:
    """Whether all of them are told as failed."""
    return all([(await provider.wait_ready(name, 0)).phase is Phase.FAILED for name in names])


def last_word(own: Cluster, node: str) -> None:
    """The simulated node says once more that it is ready: kwok may have been late with that before it was stopped."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}
    patch = json.dumps({"status": {"conditions": [ready]}})
    own.kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "-p", patch)


def cluster_pods(own: Cluster | None) -> dict[str, str]:
    """Phases of all pods of the namespace, by name."""
    assert own is not None
    lines = own.kubectl("get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.phase}{'\\n'}{end}")
    return dict(line.split(" ") for line in lines.splitlines())


async def leased(site: Site) -> tuple[PodName, str]:
    """Name and UID of the one pod that is held, once a command runs in it."""
    found: list[tuple[PodName, str]] = []

    async def there() -> bool:
        async with emberd_client.EmberdClient(site.settings.pool_key()) as client:
            for pod in await site.index.pods(PodState.LEASED, 10):
                if (await client.state(pod.name, pod.endpoint)).state == "held":
                    found[:] = [(pod.name, pod.uid)]
        return bool(found)

    await wait_until(there, 60)
    return found[0]


async def call(site: Site, shell: str) -> RunToolOutput:
    """One tool call, without a workflow."""
    tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
    given = RunToolInput(profile=PROFILE, caller=CALLER, command=Command(shell=shell, time_limit_s=300))
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)
