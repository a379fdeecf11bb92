"""The whole way: a tool call in a pod of provider kubernetes, warm, recycled, attested, without a call of its API."""

import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fixtures.cluster import ClusterUp, audit_lines
from fixtures.simulated_kubernetes import IMAGES, simulated_kubernetes
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from testcluster.image import POD_IMAGES

from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.kubernetes.access import Access
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

Calls = Callable[[], list[str]]
"""Method and path of every call of the API about pods, watches left out, that was a worker's."""


def profile(**fields: object) -> Profile:
    """One warm pod, two at most."""
    about = {"name": "k8s", "provider": "kubernetes", "min_warm": 1, "max_pods": 2, "limits": {"memory_mb": 128}}
    return Profile.model_validate(about | fields)


@asynccontextmanager
async def pool(stack: EmbeddedStack, access: Access, of: Profile) -> AsyncGenerator[Site]:
    """A worker on this host whose pods are the cluster's; they go with the block."""
    where = {"kubernetes_config": access.kubeconfig, "kubernetes_namespace": access.namespace}
    async with running_site(stack, site_settings(stack, of, **where)) as site:

        async def warm() -> bool:
            return (await site.index.counts()).by_state.get(PodState.IDLE, 0) >= 1

        async def empty() -> bool:
            return not any((await site.index.counts()).by_state.values())

        await wait_until(warm, 60)
        yield site
        await site.client.get_workflow_handle(f"emberpool-pool/{site.settings.deployment}/{of.name}").signal("drain")
        await wait_until(empty, 60)


async def test_a_warm_call_needs_no_api(stack: EmbeddedStack, tmp_path: Path) -> None:
    """Two calls of one caller: a fresh pod, then the same one after an attested reset. The API is simulated, emberd
    real."""
    async with simulated_kubernetes(tmp_path) as (api, access), pool(stack, access, profile(images=IMAGES)) as site:
        await two_calls(site, lambda: api.calls)


@pytest.mark.cluster
async def test_a_warm_call_runs_in_a_real_pod(stack: EmbeddedStack, cluster: ClusterUp) -> None:
    """The same in a pod of the cluster: its image's files, a user that is nobody on the node."""
    node = {"cpu": 0.2, "node_selector": {"kubernetes.io/hostname": "real"}}
    of = profile(images={"base": POD_IMAGES[0], "second": POD_IMAGES[1]}, kubernetes=node)
    async with pool(stack, cluster.access, of) as site:
        await two_calls(site, lambda: pod_requests(cluster))
        said = await call(site, "cat /etc/image-mark; cat /proc/self/uid_map")
        mark, uids = said.result.text.splitlines()
        assert mark == POD_IMAGES[0]
        assert uids.split()[1] != "0", "uid 0 in the pod is another on the host"


async def two_calls(site: Site, calls: Calls) -> None:
    """The second is served by the pod that served the first, and finds nothing of it."""
    first = await call(site, "echo secret > left; ls -A")
    assert first.result.text == "left\n", first.result.error_text
    assert (first.source, first.recycled) == (Source.FRESH, RecycleOutcome.IDLE)
    before = len(calls())
    second = await call(site, "ls -A")
    assert (second.result.text, second.result.ok) == ("", True), "the room is new"
    assert (second.source, second.pod, second.recycled) == (Source.REUSE, first.pod, RecycleOutcome.IDLE)
    assert [line for line in calls()[before:] if first.pod in line] == []


async def call(site: Site, shell: str) -> RunToolOutput:
    """One tool call, without a workflow."""
    tools = ToolClient(site.client, profile="k8s", caller="alice", task_queue=site.queue)
    given = RunToolInput(profile="k8s", caller="alice", command=Command(shell=shell))
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)


def pod_requests(cluster: ClusterUp) -> list[str]:
    """As the API server's audit log has them."""
    if cluster.own is None:
        return []
    return [
        f"{line['verb']} {line['requestURI']}"
        for line in audit_lines(cluster.own)
        if "/pods" in str(line["requestURI"]) and "python" in str(line.get("userAgent", "")).lower()
    ]
