"""The whole way: a tool call in a pod of provider kubernetes, warm, recycled, attested, without a call of its API."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.cluster import ClusterUp, audit_lines
from fixtures.kubernetes_pool import CALLER, PROFILE, cluster_profile, kubernetes_pool, pool_profile
from fixtures.simulated_kubernetes import IMAGES, simulated_kubernetes
from fixtures.stack import Site
from testcluster.image import POD_IMAGES

from emberpool.activities import run_tool
from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.kubernetes import changes
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

Calls = Callable[[], list[str]]
"""Method and path of every call of the API about pods, watches left out, that was a worker's."""


async def test_a_warm_call_needs_no_api(stack: EmbeddedStack, tmp_path: Path) -> None:
    """Two calls of one caller: a fresh pod, then the same one after an attested reset. The API is simulated, emberd
    real."""
    # The simulated kubelet's pods have no rooms.
    profile = pool_profile(images=IMAGES, least_tier="sweep", network="open")
    async with (
        simulated_kubernetes(tmp_path) as (api, access),
        kubernetes_pool(stack, access, profile) as site,
    ):
        await two_calls(site, lambda: api.calls)


@pytest.mark.cluster
async def test_a_warm_call_runs_in_a_real_pod(stack: EmbeddedStack, cluster: ClusterUp) -> None:
    """The same in a pod of the cluster: its image's files, a user that is nobody on the node."""
    async with kubernetes_pool(stack, cluster.access, cluster_profile()) as site:
        await two_calls(site, lambda: pod_requests(cluster))
        said = await call(site, "cat /etc/image-mark; cat /proc/self/uid_map")
        mark, uids = said.result.text.splitlines()
        assert mark == POD_IMAGES[0]
        assert uids.split()[1] != "0", "uid 0 in the pod is another on the host"


@pytest.mark.cluster
async def test_a_real_pod_without_rooms_is_started_anew(stack: EmbeddedStack, cluster: ClusterUp) -> None:
    """`least_tier: restart`, on the real kubelet: after its first lease the same pod is let again, started anew and
    attested; after the second, which comes within the kubelet's back-off, it is deleted and another takes its place."""
    of = cluster_profile(
        max_pods=1, least_tier="restart", network="open", kubernetes={"cpu": 0.1, "ask_capabilities": False}
    )
    async with kubernetes_pool(stack, cluster.access, of) as site:
        first = await call(site, "echo secret > left; (setsid sleep 600 &); ls -A")
        assert (first.result.text, first.recycled) == ("left\n", RecycleOutcome.IDLE), first
        second = await call(site, "ls -A")
        assert (second.source, second.pod, second.result.text) == (Source.REUSE, first.pod, "")
        assert second.recycled is RecycleOutcome.DRAINED
        third = await call(site, "ls -A")
        assert third.pod != first.pod and third.result.text == ""


async def test_a_pod_is_given_another_image(
    stack: EmbeddedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is one place, a caller's calls for one image and the other are served by the one pod, which is
    swapped; when its kubelet would hold the image back for longer than a swap waits, another pod serves, and that
    counts for no failure. The API is simulated, emberd real."""
    profile = pool_profile(max_pods=1, images=IMAGES, least_tier="sweep", network="open")
    async with (
        simulated_kubernetes(tmp_path) as (_, access),
        kubernetes_pool(stack, access, profile) as site,
    ):
        await to_and_fro(site, "ls -A", {image: "" for image in IMAGES}, monkeypatch)


@pytest.mark.cluster
async def test_a_real_pod_is_given_another_image(
    stack: EmbeddedStack, cluster: ClusterUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on the real kubelet, by the mark that each image has."""
    async with kubernetes_pool(stack, cluster.access, cluster_profile(max_pods=1)) as site:
        marks = {"base": f"{POD_IMAGES[0]}\n", "second": f"{POD_IMAGES[1]}\n"}
        await to_and_fro(site, "cat /etc/image-mark; ls -A", marks, monkeypatch)


async def to_and_fro(site: Site, shell: str, says: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One pod for both images, until it would be held back."""
    monkeypatch.setattr(changes, "HOLD_S", 0.0)
    monkeypatch.setattr(run_tool, "MAX_FAILURES", 1)
    first = await call(site, f"{shell}; touch left")
    assert (first.source, first.result.text) == (Source.FRESH, says["base"]), first
    for image in ("second", "base", "second"):
        swapped = await call(site, shell, image)
        assert (swapped.source, swapped.pod, swapped.result.text) == (Source.SWAP, first.pod, says[image]), swapped
    other = await call(site, shell, "base")
    assert (other.source, other.result.text) == (Source.COLD, says["base"]), other
    assert other.pod != first.pod


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


async def call(site: Site, shell: str, image: str = "") -> RunToolOutput:
    """One tool call, without a workflow."""
    tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
    given = RunToolInput(profile=PROFILE, caller=CALLER, command=Command(shell=shell), image=image)
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
