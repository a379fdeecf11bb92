"""The real API server is killed under a running pool, and comes back: nobody who holds a sandbox notices."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from fixtures.cluster import ClusterUp, audit_lines
from fixtures.kubernetes_pool import CALLER, PROFILE, cluster_profile, kubernetes_pool
from fixtures.stack import Site
from fixtures.waiting import wait_until
from testcluster.cluster import Cluster

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.command import Command
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.kubernetes.pod_spec import DEPLOYMENT_LABEL
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.cluster
PODS = 2
OUTLASTS_S = 10
"""Of a command: longer than the API server is away."""


async def test_who_holds_a_sandbox_notices_nothing(stack: EmbeddedStack, cluster: ClusterUp) -> None:
    """While it is away a command runs on, and a warm call is served by the other pod. Once it is back the watch goes
    on: a pod that is then deleted behind the pool's back is missed and replaced. No other pod was made, deleted,
    restarted or taken for lost, and the API server is asked no more than a watch needs."""
    own = cluster.own
    if own is None:
        pytest.skip("the API server of another cluster is not ours to kill")
    profile = cluster_profile(min_warm=PODS, max_pods=PODS, kubernetes={"cpu": 0.1})
    async with kubernetes_pool(stack, cluster.access, profile) as site, second_worker(site, cluster) as other:
        before = await asyncio.to_thread(incarnations, own, site)
        calling = asyncio.create_task(call(site, f"sleep {OUTLASTS_S}; echo lived"))
        held = await leased(site)
        async with no_api_server(own):

            async def noticed() -> bool:
                return other.trouble != ""

            await wait_until(noticed, 30)
            warm = await call(site, "echo warm", "bob")
            assert (warm.result.text, {warm.pod, held}) == ("warm\n", set(before))
            since = len(audit_lines(own))

        async def heard_again() -> bool:
            return other.trouble == ""

        await wait_until(heard_again, 30)
        await asyncio.to_thread(own.kubectl, "delete", "pod", warm.pod, "--wait=false")

        async def replaced() -> bool:
            idle = {pod.name for pod in await site.index.pods(PodState.IDLE, 10)}
            return len(idle - {held, warm.pod}) == 1

        await wait_until(replaced, 60)
        done = await calling
        assert (done.result.text, done.pod) == ("lived\n", held)
        after = await asyncio.to_thread(incarnations, own, site)
        assert after[held] == before[held] and len(after) == PODS, (before, after)
        assert {facts.name for facts in await other.list()} == set(after)
        assert own.is_up, "nor has any other part of the cluster ended"
        requests = about_pods(own, since)
    assert requests["create"] == 1, requests
    assert requests["delete"] <= 1, requests
    assert requests["list"] + requests["watch"] <= 12, "two workers, each of which lists, watches and looks"


@asynccontextmanager
async def second_worker(site: Site, cluster: ClusterUp) -> AsyncGenerator[KubernetesProvider]:
    """Another provider of the same pods, with a watch of its own: what it knows can be asked here."""
    (profile,) = site.settings.all_profiles()
    provider = KubernetesProvider(profile, cluster.access, site.settings.pool_key(), site.settings.deployment)
    try:
        assert len(await provider.list()) == PODS
        yield provider
    finally:
        await provider.aclose()


@asynccontextmanager
async def no_api_server(own: Cluster) -> AsyncGenerator[None]:
    """It is dead for as long as the block lasts."""
    argv = await asyncio.to_thread(own.api.kill)
    try:
        yield
    finally:
        await asyncio.to_thread(own.api.revive, argv)


def incarnations(own: Cluster, site: Site) -> dict[str, str]:
    """UID and number of restarts of each pod of the pool that is not being deleted, by its name."""
    ours = f"{DEPLOYMENT_LABEL}={site.settings.deployment}"
    path = "{.metadata.name} {.metadata.uid}/{.status.containerStatuses[0].restartCount} {.metadata.deletionTimestamp}"
    lines = own.kubectl(
        "get", "pods", "-l", ours, "-o", f"jsonpath={{range .items[*]}}{path}{{'\\n'}}{{end}}"
    ).splitlines()
    words = [line.split() for line in lines]
    return {name: uid for name, uid, *deleted in words if not deleted}


def about_pods(own: Cluster, since: int) -> Counter[str]:
    """How often workers asked what of the API server after that many lines of its audit log."""
    lines = [line for line in audit_lines(own)[since:] if "/pods" in str(line["requestURI"])]
    return Counter(str(line["verb"]) for line in lines if "python" in str(line.get("userAgent", "")).lower())


async def leased(site: Site) -> PodName:
    """The one pod that is held, once a command runs in it."""
    found: list[PodName] = []

    async def there() -> bool:
        async with EmberdClient(site.settings.pool_key()) as client:
            for pod in await site.index.pods(PodState.LEASED, 10):
                if (await client.state(pod.name, pod.endpoint)).state == "held":
                    found[:] = [pod.name]
        return bool(found)

    await wait_until(there, 60)
    return found[0]


async def call(site: Site, shell: str, caller: str = CALLER) -> RunToolOutput:
    """One tool call, without a workflow."""
    tools = ToolClient(site.client, profile=PROFILE, caller=caller, task_queue=site.queue)
    given = RunToolInput(profile=PROFILE, caller=caller, command=Command(shell=shell))
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)
