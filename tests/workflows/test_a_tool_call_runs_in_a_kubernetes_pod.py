"""The whole way: a workflow's command in a real pod of the test cluster, warm, recycled, attested."""

import uuid
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from fixtures.cluster import ClusterUp, audit_lines
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from testcluster.image import POD_IMAGES

from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.cluster
PROFILE = Profile.model_validate(
    {
        "name": "k8s",
        "provider": "kubernetes",
        "images": {"base": POD_IMAGES[0], "second": POD_IMAGES[1]},
        "min_warm": 1,
        "max_pods": 2,
        "limits": {"memory_mb": 128},
        "kubernetes": {"cpu": 0.2, "node_selector": {"kubernetes.io/hostname": "real"}},
    }
)


@pytest_asyncio.fixture
async def kubernetes_pool(stack: EmbeddedStack, cluster: ClusterUp) -> AsyncGenerator[Site]:
    """A worker on this host whose pods are the cluster's."""
    access = {"kubernetes_config": cluster.access.kubeconfig, "kubernetes_namespace": cluster.access.namespace}
    async with running_site(stack, site_settings(stack, PROFILE, **access)) as site:
        yield site
        for pod in await site.index.pods(PodState.IDLE, 100):
            await site.index.drain(pod.name, "the test is over")

        async def empty() -> bool:
            return not any((await site.index.counts()).by_state.values())

        await site.index.set_targets(0, 0, 0)
        await wait_until(empty)


async def test_a_warm_call_is_served_by_the_pod_that_served_before(kubernetes_pool: Site, cluster: ClusterUp) -> None:
    """Two tool calls of one caller: the first in a fresh pod, the second in the same one after an attested reset, that
    finds nothing of the first; and no call of the Kubernetes API between claim and answer."""
    site = kubernetes_pool

    async def warm() -> bool:
        return (await site.index.counts()).by_state.get(PodState.IDLE, 0) >= 1

    await wait_until(warm, 60)
    first = await call(site, "cat /etc/image-mark; echo secret > /tmp/left; cat /proc/self/uid_map")
    assert first.result.ok, first.result.error_text
    assert POD_IMAGES[0] in first.result.text
    assert first.result.text.split()[-2] != "0", "uid 0 in the pod is another on the host"
    assert (first.source, first.recycled) == (Source.FRESH, RecycleOutcome.IDLE)
    before = pod_requests(cluster)
    second = await call(site, "ls -A /tmp; id -u")
    assert second.result.text == "0\n", "the room is new"
    assert (second.source, second.pod, second.recycled) == (Source.REUSE, first.pod, RecycleOutcome.IDLE)
    assert second.ttfc_s is not None and second.ttfc_s < 2.0
    assert [line for line in pod_requests(cluster)[len(before) :] if first.pod in line] == []


async def call(site: Site, shell: str) -> RunToolOutput:
    """One tool call of one caller, without a workflow."""
    tools = ToolClient(site.client, profile=PROFILE.name, caller="alice", task_queue=site.queue)
    given = RunToolInput(profile=PROFILE.name, caller="alice", command=Command(shell=shell))
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)


def pod_requests(cluster: ClusterUp) -> list[str]:
    """Method and path of every request about pods that was not the kubelet's or a controller's."""
    if cluster.own is None:
        return []
    return [
        f"{line['verb']} {line['requestURI']}"
        for line in audit_lines(cluster.own)
        if "/pods" in str(line["requestURI"]) and "python" in str(line.get("userAgent", "")).lower()
    ]
