"""Pods of a node that went away: their places stay taken until they are known to be gone, and the node is named. The
API is simulated, emberd real."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest
from fixtures.kubernetes_pool import PROFILE, kubernetes_pool, pool_profile
from fixtures.local import new_name, watching
from fixtures.simulated_kubernetes import IMAGES, SimulatedSite, simulated_kubernetes
from fixtures.stack import Site
from fixtures.waiting import wait_until

from emberpool.activities.metrics import Metrics, PoolMetrics
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.kubernetes import silent_nodes
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.worker import metrics_server
from emberpool.worker.stack.embedded import EmbeddedStack


async def test_a_pod_that_does_not_go_is_told_with_its_node(simulated_site: SimulatedSite) -> None:
    """kubernetes/kubernetes#51835, kubernetes-sigs/kueue#6757: its kubelet is down, so that a deletion never ends. The
    caller hears which node blocks it; the pod stays listed as failed, and so it stays counted; once the node is back,
    the same deletion ends."""
    of = Profile.model_validate({"name": "lost", "provider": "kubernetes", "images": IMAGES})
    site = simulated_site
    provider = KubernetesProvider(of, site.access, site.key, site.deployment, delete_s=0.3)
    site.made.append(provider)
    name = new_name()
    await provider.create(name, "")
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    site.api.lost = True
    with pytest.raises(PoolUnavailable, match=f"pod {name} does not go within 0.3 s: node node-1 does not end it"):
        await provider.delete(name)
    assert [(facts.name, facts.phase, facts.reason) for facts in await provider.list()] == [
        (name, Phase.FAILED, "deleted")
    ]
    site.api.lost = False
    await site.api.kubelet(name).delete()
    await provider.delete(name)
    assert await provider.list() == []


async def test_the_first_call_of_a_ready_pod_is_answered(simulated_site: SimulatedSite) -> None:
    """kurtosis-tech/kurtosis#3148: the container runs well before what is in it answers. A pod is ready only when its
    emberd has answered, so that eight first calls, each made at that very moment, all succeed."""
    provider = simulated_site.slow_provider(0.2)
    names = [new_name() for _ in range(8)]
    for name in names:
        await provider.create(name, "")

    async def first_call(name: PodName) -> str:
        assert (await provider.wait_ready(name, 30)).phase is Phase.READY
        return (await simulated_site.emberd_state(name)).state

    assert await asyncio.gather(*(first_call(name) for name in names)) == ["clean"] * 8


SOON_S = 15.0


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of waiting become one."""
    for name, value in (("ANSWER_S", 0.5), ("AGAIN_S", 0.1), ("PAUSE_S", 0.3), ("SILENT_S", 0.7), ("ALONE_S", 1.4)):
        monkeypatch.setattr(silent_nodes, name, value)


async def test_pods_of_a_silent_node_are_lost_with_it(simulated_site: SimulatedSite, hurry: None) -> None:
    """The control plane says no more than that they are not ready, and takes them away in minutes: those that do not
    answer either are told as lost at once, with the node's name."""
    provider, name = simulated_site.kubernetes, new_name()
    await provider.create(name, "")
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    async with watching(provider) as changes:
        assert (await anext(changes)).phase is Phase.READY
        await simulated_site.api.silent_node(freeze=True)
        facts = await asyncio.wait_for(anext(changes), SOON_S)
    assert facts.phase is Phase.FAILED and facts.reason.startswith("node_lost: node-1 is not ready"), facts
    await simulated_site.api.node_is_back()
    assert (await provider.wait_ready(name, 0)).phase is Phase.FAILED, "what was given up stays so"


async def test_pods_that_serve_on_a_silent_node_serve_on(simulated_site: SimulatedSite, hurry: None) -> None:
    """Where only the kubelet hangs, nobody loses a job; once one of them hangs too, it alone is lost."""
    provider, names = simulated_site.kubernetes, [new_name(), new_name()]
    for name in names:
        await provider.create(name, "")
        assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    await simulated_site.api.silent_node(freeze=False)
    for name in names:
        assert await simulated_site.job(name, "echo on") == "on\n"
    os.kill(simulated_site.api.kubelet(names[0]).pid, signal.SIGSTOP)

    async def lost() -> bool:
        return (await provider.wait_ready(names[0], 0)).phase is Phase.FAILED

    await wait_until(lost, SOON_S)
    assert await simulated_site.job(names[1], "echo on") == "on\n"
    await simulated_site.api.node_is_back()


async def test_a_worker_that_hears_nobody_calls_no_pod_lost(
    simulated_site: SimulatedSite, hurry: None, caplog: pytest.LogCaptureFixture
) -> None:
    """A pod of a node that is well is asked beside those of a silent one: if it does not answer either, it is likelier
    this worker that is cut off. Once it answers they are lost."""
    caplog.set_level(logging.INFO, silent_nodes.__name__)
    provider, api, gone, well = simulated_site.kubernetes, simulated_site.api, new_name(), new_name()
    for name in (gone, well):
        await provider.create(name, "")
        assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    api.pods[well]["spec"]["nodeName"] = "node-2"
    await api.publish("MODIFIED", api.pods[well])
    os.kill(api.kubelet(well).pid, signal.SIGSTOP)
    await api.silent_node(freeze=True, name="node-1")

    async def weighed() -> bool:
        return caplog.text.count(f"pod {gone} is silent, and so is") >= 2

    await wait_until(weighed, SOON_S)
    assert (await provider.wait_ready(gone, 0)).phase is Phase.READY
    os.kill(api.kubelet(well).pid, signal.SIGCONT)

    async def lost() -> bool:
        return (await provider.wait_ready(gone, 0)).phase is Phase.FAILED

    await wait_until(lost, SOON_S)
    assert (await provider.wait_ready(well, 0)).phase is Phase.READY
    await api.node_is_back()


async def test_a_node_that_goes_starts_no_storm(
    stack: EmbeddedStack, tmp_path: Path, hurry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All warm pods hang with their node. They keep their places until they are known to be gone, so that no more are
    made than there are places left; once the node is back they go, and others take their places. Meanwhile a gauge
    tells of those that do not go (kubernetes/kubernetes#51835), for an alert."""
    metrics = Metrics().of(PROFILE)
    warm, most = 6, 8
    about = {"min_warm": warm, "max_pods": most, "least_tier": "sweep", "network": "open"}
    profile = pool_profile(images=IMAGES, **about)
    async with simulated_kubernetes(tmp_path) as (api, access), kubernetes_pool(stack, access, profile) as site:
        before = set(api.pods)
        await api.silent_node(freeze=True)

        async def replaced() -> bool:
            counts = (await site.index.counts()).by_state
            lost = [name for name in before if "deletionTimestamp" in api.pods[name]["metadata"]]
            return len(lost) == warm and counts.get(PodState.IDLE, 0) == most - warm

        await wait_until(replaced, 30)
        draining = await site.index.pods(PodState.DRAINING, most)
        assert {pod.name for pod in draining} == before
        assert all(pod.reason.startswith("node_lost: node-1") for pod in draining), draining
        assert sum(line.startswith("POST ") for line in api.calls) == most == len(api.pods)
        assert await stuck_as_gauged(site, metrics) == 0, "not for long yet"
        monkeypatch.setattr(metrics_server, "STUCK_S", 0.0)
        assert await stuck_as_gauged(site, metrics) == warm
        await api.node_is_back()

        async def whole() -> bool:
            return not before & set(api.pods) and (await site.index.counts()).by_state.get(PodState.IDLE, 0) >= warm

        await wait_until(whole, 30)
        assert sum(line.startswith("POST ") for line in api.calls) <= most + warm
        assert await stuck_as_gauged(site, metrics) == 0


async def stuck_as_gauged(site: Site, metrics: PoolMetrics) -> float | None:
    """What a scrape says of pods that do not go."""
    await metrics_server.count(site.index, metrics)
    return metrics.metrics.registry.get_sample_value("emberpool_pods_stuck", {"profile": PROFILE})
