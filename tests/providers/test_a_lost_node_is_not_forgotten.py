"""Pods of a node that went away: their places stay taken until they are known to be gone, and the node is named. The
API is simulated, emberd real."""

import asyncio

import pytest
from fixtures.local import new_name
from fixtures.simulated_kubernetes import IMAGES, SimulatedSite

from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider


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
