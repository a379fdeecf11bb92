"""Promotion and image swap of Kubernetes pods, in place: on the simulated API, and on the test cluster."""

import asyncio
import time
from typing import Any

import pytest
from fixtures.kubernetes_site import TAG, PodsOfOneKey
from fixtures.local import new_name, until_it_failed

from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes import changes
from emberpool.pool.providers.kubernetes.quantity import same_amounts
from emberpool.pool.providers.kubernetes.view import view
from emberpool.pool.providers.provider import HELD_BACK


@pytest.fixture(params=["simulated_site", pytest.param("kubernetes_site", marks=pytest.mark.cluster)])
def site(request: pytest.FixtureRequest) -> Any:
    """Each kind of Kubernetes pods."""
    return request.getfixturevalue(request.param)


async def test_a_swapped_pod_is_the_same_pod_with_another_image(site: PodsOfOneKey) -> None:
    """UID, address and tag stay; the new emberd has proved that nothing of the last job is left."""
    provider, name = site.kubernetes, new_name()
    await provider.create(name, "")
    await site.job(name, "touch left")
    before, epoch = await provider.wait_ready(name, 0), (await site.emberd_state(name)).epoch
    assert await provider.swap(name, "second", epoch + 1) == ""
    assert await provider.swap(name, "second", epoch + 1) == "", "a retry finds it done"
    after = await provider.wait_ready(name, 0)
    assert (after.phase, after.uid, after.endpoint) == (Phase.READY, before.uid, before.endpoint)
    assert (after.image, (await provider.list())[0].image) == ("second", "second")
    assert view(await site.pod(name)).restarts == 1
    state = await site.emberd_state(name)
    assert (state.state, state.tag, state.epoch) == ("clean", TAG, epoch + 1)
    assert await site.job(name, "ls -A") == ""


async def test_a_swap_of_an_unused_pod_leaves_it_unused(site: PodsOfOneKey) -> None:
    """It has no tag before and none after."""
    provider, name = site.kubernetes, new_name()
    await provider.create(name, "")
    await provider.wait_ready(name, 30)
    assert await provider.swap(name, "second", 5) == ""
    state = await site.emberd_state(name)
    assert (state.state, state.tag, state.uses) == ("clean", "", 0)


async def test_what_the_kubelet_would_hold_back_is_not_begun(
    site: PodsOfOneKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back and there is free; then the image would be held back, and a pod whose container has ended by then
    is lost. So the swap is refused at once by any worker, or waits the short while and is done; the pod serves on."""
    workers, name = [site.kubernetes, site.make(name=site.kubernetes.profile.name)], new_name()
    await workers[0].create(name, "")
    await workers[0].wait_ready(name, 30)
    for turn, image in enumerate(("second", "base", "second")):
        assert await workers[turn % 2].swap(name, image, turn + 2) == ""
    before = await site.pod(name)
    with monkeypatch.context() as patience:
        patience.setattr(changes, "HOLD_S", 0.0)
        for worker in workers:
            began = time.monotonic()
            assert (await worker.swap(name, "base", 5)).startswith(HELD_BACK)
            assert time.monotonic() - began < 1.0
            assert (await worker.wait_ready(name, 5)).phase is Phase.READY
    assert (await site.pod(name))["spec"] == before["spec"]
    assert await site.job(name, "echo on") == "on\n"
    assert await workers[1].swap(name, "base", (await site.emberd_state(name)).epoch + 1) == ""
    after = await workers[0].wait_ready(name, 5)
    assert (after.phase, after.image, view(await site.pod(name)).restarts) == (Phase.READY, "base", 4)


async def test_a_pod_is_started_anew_by_its_kubelet(site: PodsOfOneKey) -> None:
    """If its profile says so, and not twice in ten minutes, which the kubelet would hold back: the same pod, fenced as
    it was, and never failed for whoever watches."""
    provider, name = site.make(least_tier="restart", network="open"), new_name()
    await provider.create(name, "")
    await site.job(name, "touch left", provider)
    before, state = await provider.wait_ready(name, 0), await site.emberd_state(name, provider)
    watched = asyncio.create_task(until_it_failed(provider, name))
    assert await site.anew(name, provider) == ""
    after, now = await provider.wait_ready(name, 0), await site.emberd_state(name, provider)
    assert (after.uid, after.endpoint) == (before.uid, before.endpoint)
    assert now.boot_id != state.boot_id and (now.state, now.tag) == ("dirty", TAG)
    assert view(await site.pod(name)).restarts == 1
    assert "within the last 600 s" in await provider.restart(name, now.epoch)
    await provider.delete(name)
    assert (await asyncio.wait_for(watched, 30))[-1].reason in ("deleted", "gone")


async def test_a_promoted_pod_holds_its_full_share(site: PodsOfOneKey) -> None:
    """Tiny requests while it stands by; the profile's after the promotion, without a restart."""
    provider, name = site.kubernetes, new_name()
    await provider.create(name, "", standby=True)
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    assert same_amounts(view(await site.pod(name)).requests, {"cpu": "10m", "memory": "64Mi"})
    assert await provider.promote(name) == ""
    after, wanted = view(await site.pod(name)), provider.profile
    full = {"cpu": str(wanted.kubernetes.cpu), "memory": f"{wanted.limits.memory_mb}Mi"}
    assert same_amounts(after.requests, full)
    assert after.restarts == 0


async def test_a_promoted_pod_stays_so_with_another_image(site: PodsOfOneKey) -> None:
    """Its new emberd is told once more that it stands by, and is promoted once more: it serves leases."""
    provider, name = site.kubernetes, new_name()
    await provider.create(name, "", standby=True)
    await provider.wait_ready(name, 30)
    assert await provider.promote(name) == ""
    assert await provider.swap(name, "second", (await site.emberd_state(name)).epoch + 1) == ""
    assert not (await site.emberd_state(name)).standby
    assert await site.job(name, "echo served") == "served\n"


async def test_a_swap_that_is_no_swap_any_more_changes_nothing(site: PodsOfOneKey) -> None:
    """A pod that was leased since refuses a late swap's fence by its epoch, and the caller is told."""
    provider, name = site.kubernetes, new_name()
    await provider.create(name, "")
    await site.job(name, "true")
    await site.job(name, "true")
    epoch = (await site.emberd_state(name)).epoch
    proof = await site.lease(name)
    assert (await provider.swap(name, "base", epoch - 1)).startswith("emberd: ")
    assert (await site.emberd_state(name)).lease == proof.request_id
