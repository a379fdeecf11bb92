"""What pool/providers/provider.py promises, on every place where pods can live."""

import asyncio
import time

import pytest
from fixtures.local import PodSite, new_name, watching

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.pod import Phase, PodFacts


async def test_creating_twice_makes_one_pod(pod_site: PodSite) -> None:
    """`create` is idempotent by name: the second call changes nothing, also once the pod is ready."""
    name = new_name()
    await pod_site.provider.create(name, "")
    await pod_site.provider.create(name, "")
    first = await pod_site.provider.wait_ready(name, 30)
    await pod_site.provider.create(name, "")
    assert await pod_site.provider.list() == [first]


async def test_create_returns_before_the_pod_is_ready(pod_site: PodSite) -> None:
    """`create` only asks; the pod is pending and gets ready by itself."""
    name, provider = new_name(), pod_site.slow_provider(1.0)
    await provider.create(name, "")
    assert (await provider.list())[0].phase is Phase.PENDING
    assert (await provider.wait_ready(name, 0.1)).phase is Phase.PENDING
    facts = await provider.wait_ready(name, 30)
    assert facts.phase is Phase.READY, facts
    assert facts.endpoint and facts.uid and facts.image == "base"


async def test_a_name_that_does_not_exist_is_failed(pod_site: PodSite) -> None:
    """Waiting for a pod that nobody created ends at once, with the reason `gone`."""
    facts = await pod_site.provider.wait_ready(new_name(), 30)
    assert (facts.phase, facts.reason) == (Phase.FAILED, "gone")


async def test_delete_returns_when_nothing_is_left(pod_site: PodSite) -> None:
    """After `delete` no process and no folder of the pod exists, and deleting again is silent."""
    name = new_name()
    await pod_site.provider.create(name, "")
    assert (await pod_site.provider.wait_ready(name, 30)).phase is Phase.READY
    await pod_site.remember(name)
    assert await pod_site.left_of(name) != []
    await pod_site.provider.delete(name)
    assert await pod_site.left_of(name) == []
    assert await pod_site.provider.list() == []
    await pod_site.provider.delete(name)


async def test_deleting_a_pod_that_is_still_starting_leaves_nothing(pod_site: PodSite) -> None:
    """`delete` at any moment of the start ends the pod."""
    names = [new_name() for _ in range(4)]
    for name in names:
        await pod_site.provider.create(name, "")
    await asyncio.gather(*(pod_site.provider.delete(name) for name in names))
    assert [await pod_site.left_of(name) for name in names] == [[], [], [], []]
    assert await pod_site.provider.list() == []


async def test_two_who_delete_at_once_both_succeed(pod_site: PodSite) -> None:
    """Deletion is shared: both callers return when the pod is gone."""
    name = new_name()
    await pod_site.provider.create(name, "")
    await pod_site.provider.wait_ready(name, 30)
    await pod_site.remember(name)
    await asyncio.gather(pod_site.provider.delete(name), pod_site.provider.delete(name))
    assert await pod_site.left_of(name) == []


async def test_a_pod_of_the_same_name_is_another_incarnation(pod_site: PodSite) -> None:
    """The UID tells a pod from one that had its name before."""
    name = new_name()
    await pod_site.provider.create(name, "")
    first = await pod_site.provider.wait_ready(name, 30)
    await pod_site.provider.delete(name)
    await pod_site.provider.create(name, "")
    assert (await pod_site.provider.wait_ready(name, 30)).uid != first.uid


async def test_a_killed_emberd_is_a_failed_pod(pod_site: PodSite) -> None:
    """SIGKILL to emberd is seen, and the pod never becomes ready again by itself."""
    name = new_name()
    await pod_site.provider.create(name, "")
    ready = await pod_site.provider.wait_ready(name, 30)
    async with watching(pod_site.provider) as changes:
        assert await anext(changes) == ready
        await pod_site.kill_emberd(name)
        failed = await anext(changes)
    assert (failed.phase, failed.uid) == (Phase.FAILED, ready.uid)
    assert failed.reason.startswith("exited: killed by SIGKILL")
    assert await pod_site.provider.wait_ready(name, 30) == failed


async def test_a_watch_sees_birth_and_end(pod_site: PodSite) -> None:
    """A watch tells what is there, then every change up to the end, which comes as FAILED."""
    old, new = new_name(), new_name()
    await pod_site.provider.create(old, "")
    await pod_site.provider.wait_ready(old, 30)
    async with watching(pod_site.provider) as changes:
        assert (await anext(changes)).name == old
        await pod_site.provider.create(new, "")
        seen: list[PodFacts] = []
        while not seen or seen[-1].phase is not Phase.READY:
            seen.append(await anext(changes))
        assert {facts.name for facts in seen} == {new}
        await pod_site.provider.delete(new)
        end = await anext(changes)
        while end.phase is not Phase.FAILED:
            end = await anext(changes)
    assert end.name == new and end.uid == seen[-1].uid and end.reason


async def test_an_unknown_image_is_refused(pod_site: PodSite) -> None:
    """An image that the profile does not name is the caller's mistake, and nothing is made."""
    with pytest.raises(InvalidInput) as error:
        await pod_site.provider.create(new_name(), "no-such-image")
    assert error.value.field == "image"
    assert await pod_site.provider.list() == []


async def test_a_standby_pod_serves_nobody_before_it_is_promoted(pod_site: PodSite) -> None:
    """Its emberd says that it stands by and refuses a lease; once promoted, twice over, it is a pod like any other."""
    name, provider = new_name(), pod_site.provider
    await provider.create(name, "", standby=True)
    ready = await provider.wait_ready(name, 30)
    assert ready.phase is Phase.READY, ready
    assert (await pod_site.emberd_state(name)).standby
    assert await pod_site.word_of_a_lease(name) == "standing_by"
    assert [await provider.promote(name), await provider.promote(name)] == ["", ""]
    assert not (await pod_site.emberd_state(name)).standby
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    assert await pod_site.word_of_a_lease(name) == ""


async def test_a_swap_in_vain_says_why(pod_site: PodSite) -> None:
    """An image that the pod cannot get, and a pod that is not there: a reason, and the pod is as it was."""
    name, provider = new_name(), pod_site.provider
    await provider.create(name, "")
    ready = await provider.wait_ready(name, 30)
    assert await provider.swap(name, "no-such-image", 1)
    assert await provider.wait_ready(name, 30) == ready
    assert await pod_site.word_of_a_lease(name) == ""
    assert await provider.swap(new_name(), "base", 1)
    assert await provider.promote(new_name())


async def test_a_restart_in_vain_says_why(pod_site: PodSite) -> None:
    """A pod that nobody fenced at that epoch, and one that is not there: a reason, and the pod is as it was."""
    name, provider = new_name(), pod_site.provider
    await provider.create(name, "")
    ready = await provider.wait_ready(name, 30)
    boot = (await pod_site.emberd_state(name)).boot_id
    assert await provider.restart(name, 1)
    assert await provider.wait_ready(name, 30) == ready
    assert (await pod_site.emberd_state(name)).boot_id == boot
    assert await provider.restart(new_name(), 1)


async def test_many_warm_pods_are_deleted_at_once(pod_site: PodSite) -> None:
    """Eight idle pods that are deleted together are gone within 5 s: none waits out a grace that nobody
    heeds (borenstein/yolo-cage#13)."""
    names = [new_name() for _ in range(8)]
    await asyncio.gather(*(pod_site.provider.create(name, "") for name in names))
    for name in names:
        assert (await pod_site.provider.wait_ready(name, 30)).phase is Phase.READY
        await pod_site.remember(name)
    began = time.monotonic()
    await asyncio.gather(*(pod_site.provider.delete(name) for name in names))
    assert time.monotonic() - began < 5
    for name in names:
        assert await pod_site.left_of(name) == []
