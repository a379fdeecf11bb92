"""How long a promotion and a swap take on the real kubelet, to the first word of a job."""

import time
from collections.abc import Awaitable, Callable
from statistics import median

import pytest
from fixtures.cluster import KubernetesSite
from fixtures.local import new_name

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider

pytestmark = pytest.mark.cluster
TIMES = 8
PROMOTED_S, SWAPPED_S = 1.5, 6.0
"""Several times what a quiet machine takes (docs/kubernetes.md), since others may use this one."""


async def pods(provider: KubernetesProvider, standby: bool) -> list[PodName]:
    """Some that are ready."""
    names = [new_name() for _ in range(TIMES)]
    for name in names:
        await provider.create(name, "", standby=standby)
    for name in names:
        facts = await provider.wait_ready(name, 60)
        assert facts.phase is Phase.READY, facts
    return names


async def timed(names: list[PodName], act: Callable[[PodName], Awaitable[None]]) -> list[float]:
    """Seconds of each, one after the other, from the shortest."""
    took: list[float] = []
    for name in names:
        began = time.monotonic()
        await act(name)
        took.append(time.monotonic() - began)
    return sorted(took)


async def test_a_promotion_is_done_before_anybody_waits(
    kubernetes_site: KubernetesSite, record_property: Callable[[str, object], None]
) -> None:
    """From the request to the first word of the first job, the resize by `pods/resize` included."""
    provider = kubernetes_site.make(kubernetes={"cpu": 0.1, "node_selector": {"kubernetes.io/hostname": "real"}})
    kubernetes_site.kubernetes = provider

    async def promoted(name: PodName) -> None:
        assert await provider.promote(name) == ""
        assert await kubernetes_site.job(name, "echo here") == "here\n"

    took = await timed(await pods(provider, standby=True), promoted)
    print(f"promotion and first word: median {median(took):.3f} s, longest {took[-1]:.3f} s")
    record_property("promotion_median_s", median(took))
    assert median(took) < PROMOTED_S, took


async def test_a_swap_in_place_takes_seconds_at_most(
    kubernetes_site: KubernetesSite, record_property: Callable[[str, object], None]
) -> None:
    """A used pod's container is replaced by one of another image, fenced and attested; each pod once, since going back
    to an image that a pod has just left meets the kubelet's back-off."""
    provider = kubernetes_site.make(kubernetes={"cpu": 0.1, "node_selector": {"kubernetes.io/hostname": "real"}})
    kubernetes_site.kubernetes = provider
    names = await pods(provider, standby=False)
    for name in names:
        await kubernetes_site.job(name, "touch left")

    async def swapped(name: PodName) -> None:
        epoch = (await kubernetes_site.emberd_state(name)).epoch
        assert await provider.swap(name, "second", epoch + 1) == ""

    took = await timed(names, swapped)
    print(f"swap: median {median(took):.3f} s, longest {took[-1]:.3f} s")
    record_property("swap_median_s", median(took))
    assert median(took) < SWAPPED_S, took
