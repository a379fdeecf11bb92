"""Promotions that a real node does not do at once, or at all: nobody waits for them for ever."""

import asyncio
import logging
import os
import time
import uuid

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite
from fixtures.kubernetes_pool import CALLER, PROFILE, cluster_profile, kubernetes_pool
from fixtures.local import new_name
from fixtures.stack import Site
from fixtures.waiting import wait_until

from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import NoCapacity
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.kubernetes import changes
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.cluster
REAL = {"kubernetes.io/hostname": "real"}
MOST = 0.6 * (os.cpu_count() or 1)
"""Cores of a pod that leaves no room for another of its kind: the node has as many as this machine."""


async def test_a_runtime_that_refuses_a_resize_costs_seconds(
    stack: EmbeddedStack, cluster: ClusterUp, caplog: pytest.LogCaptureFixture
) -> None:
    """gVisor here resizes no container, and its kubelet says so: who was to have the pod that stood by has another
    instead. From then on pods that stand by ask for their full share from the start, and are promoted."""
    caplog.set_level(logging.WARNING)
    about: dict[str, object] = {"cpu": 0.2, "boundary": "gvisor", "runtime_class": "gvisor", "scratch_mb": 64}
    of = cluster_profile(min_warm=0, standby=1, max_pods=3, kubernetes=about)
    async with kubernetes_pool(stack, cluster.access, of) as site:
        stood_by = await standing_by(site)
        began = time.monotonic()
        done = await call(site, 60.0)
        assert time.monotonic() - began < 20
        assert f"pod {stood_by} cannot leave promoting and goes: resize: the runtime refuses it: " in caplog.text
        assert (done.result.text, done.pod == stood_by) == ("here\n", False), done

        async def promoted() -> bool:  # one that was made before the refusal was known is refused at once, and replaced
            await standing_by(site)
            return (await call(site, 60.0, f"caller-{uuid.uuid4().hex[:8]}")).source is Source.STANDBY

        await wait_until(promoted, 60)
    assert caplog.text.count("its runtime refuses to resize it") == 1, "nobody waits for a second refusal"


async def test_what_no_node_can_give_is_refused_at_once(kubernetes_site: KubernetesSite) -> None:
    """More cores than the node has: by the API server itself, which keeps the pod as it is."""
    provider, name = kubernetes_site.make(kubernetes={"cpu": 1000, "node_selector": REAL}), new_name()
    await provider.create(name, "", standby=True)
    await provider.wait_ready(name, 30)
    began = time.monotonic()
    assert (await provider.promote(name)).startswith("resize: 403 Forbidden: ")
    assert time.monotonic() - began < changes.RESIZE_S / 2
    assert (await provider.wait_ready(name, 0)).phase is Phase.READY


async def test_a_promotion_that_is_deferred_is_given_up(
    stack: EmbeddedStack,
    cluster: ClusterUp,
    kubernetes_site: KubernetesSite,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node's cores are another's: the standby pod goes, and who waited for it has a pod once there is room again;
    or hears NoCapacity at the end of its own patience, if there is none."""
    monkeypatch.setattr(changes, "RESIZE_S", 2.0)
    neighbour, name = kubernetes_site.make(kubernetes={"cpu": MOST, "node_selector": REAL}), new_name()
    await neighbour.create(name, "")
    assert (await neighbour.wait_ready(name, 30)).phase is Phase.READY
    of = cluster_profile(min_warm=0, standby=1, max_pods=2, kubernetes={"cpu": MOST})
    async with kubernetes_pool(stack, cluster.access, of) as site:
        stood_by = await standing_by(site)
        began = time.monotonic()
        with pytest.raises(NoCapacity):
            await call(site, 3.0)
        assert time.monotonic() - began < 40
        calling = asyncio.create_task(call(site, 120.0))

        async def given_up() -> bool:
            return await site.index.pod(stood_by) is None

        await wait_until(given_up, 30)
        await neighbour.delete(name)
        done = await calling
        assert done.result.text == "here\n"
        assert done.source in (Source.COLD, Source.STANDBY) and done.pod != stood_by, done


async def standing_by(site: Site) -> PodName:
    """The pod that stands by, once one does."""

    async def one() -> bool:
        return bool(await site.index.pods(PodState.STANDBY, 10))

    await wait_until(one, 60)
    return (await site.index.pods(PodState.STANDBY, 10))[0].name


async def call(site: Site, wait_timeout_s: float, caller: str = CALLER) -> RunToolOutput:
    """One tool call, without a workflow."""
    tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
    given = RunToolInput(
        profile=PROFILE, caller=caller, command=Command(shell="echo here"), wait_timeout_s=wait_timeout_s
    )
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)
