"""A local pod is promoted and gets another image where it is, in the time of one room."""

import time
from collections.abc import AsyncIterator

import pytest
from fixtures.hand import Hand
from fixtures.images import make_image
from fixtures.local import MakeProvider, SupervisorProcess, new_name, new_pod
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.model.errors import PodRefused


@pytest.fixture
async def client(supervisor: SupervisorProcess) -> AsyncIterator[EmberdClient]:
    """A client with the supervisor's pool key."""
    async with EmberdClient(supervisor.key) as made:
        yield made


@pytest.fixture
def images(supervisor: SupervisorProcess) -> dict[str, str]:
    """Two images that differ in a file."""
    roots = {name: supervisor.root / f"image-{name}" for name in ("red", "blue")}
    return {name: str(root if root.exists() else make_image(root, name)) for name, root in roots.items()}


async def test_a_swap_changes_what_the_next_lease_finds(
    local_provider: MakeProvider, client: EmberdClient, images: dict[str, str]
) -> None:
    """From the host's own root to one image, to another, and back: the same pod, still reset and attested between."""
    provider = local_provider(images=images)
    hand = Hand(client, provider, await new_pod(provider))
    first = await hand.address()
    assert (await hand.run("test -e /marker || echo base")).text == "base\n"
    for name in ("red", "blue"):
        await hand.reset()
        began = time.monotonic()
        assert await hand.swap(name) == ""
        took_s = time.monotonic() - began
        assert took_s < 5, f"{took_s:.3f} s: a swap is a room, not a pod"
        assert (await provider.wait_ready(hand.name, 0)).image == name
        assert (await hand.run("cat /marker; echo > /left")).text == f"{name}\n"
        await hand.reset()
        assert (await hand.run("cat /marker; [ -e /left ] || echo gone")).text == f"{name}\ngone\n"
    await hand.reset()
    assert await hand.swap("base") == ""
    assert (await hand.run("test -e /marker || python3 -c 'print(1)'")).text == "1\n"
    assert await hand.address() == first, "it is the same pod, never restarted"


async def test_a_held_or_dirty_pod_is_not_swapped(
    local_provider: MakeProvider, client: EmberdClient, images: dict[str, str]
) -> None:
    """emberd judges: while somebody has the pod, or after him, before the reset, its image stays."""
    provider = local_provider(images=images)
    hand = Hand(client, provider, await new_pod(provider))
    assert (await hand.run("true")).ok
    assert "not_clean" in await provider.swap(hand.name, "red", hand.epoch + 5)
    await client.fence(await hand.address(), hand.epoch + 1)
    assert "not_clean" in await provider.swap(hand.name, "red", hand.epoch + 5)
    assert (await provider.wait_ready(hand.name, 0)).image == "base"


async def test_a_late_swap_is_refused_by_its_epoch(
    local_provider: MakeProvider, client: EmberdClient, images: dict[str, str]
) -> None:
    """Asked again it is done once; one that comes after the pod was let again changes nothing."""
    provider = local_provider(images=images)
    hand = Hand(client, provider, await new_pod(provider))
    assert await hand.swap("red") == ""
    swapped_at = hand.epoch
    assert await provider.swap(hand.name, "red", swapped_at) == ""
    assert "stale_epoch" in await provider.swap(hand.name, "blue", swapped_at)
    assert (await hand.run("cat /marker")).text == "red\n"
    await hand.reset()
    assert "stale_epoch" in await provider.swap(hand.name, "blue", swapped_at)
    with pytest.raises(PodRefused, match="stale_epoch"):
        await client.bind(await hand.address(), LeaseProof("late", swapped_at, "a" * 32, 60.0), {})
    assert (await hand.run("cat /marker")).text == "red\n"


async def test_an_image_that_is_missing_on_this_machine_needs_another_pod(local_provider: MakeProvider) -> None:
    """The pod starts without it, and a swap to it says so."""
    provider = local_provider(images={"lost": "/no/such/folder"})
    assert "no_image" in await provider.swap(await new_pod(provider), "lost", 1)


async def test_a_standby_pod_is_small_and_its_full_size_comes_at_once(
    local_provider: MakeProvider, client: EmberdClient, supervisor: SupervisorProcess
) -> None:
    """It keeps no spare room; promoted within the time of a room, its jobs have the memory that the profile gives."""
    provider, before = local_provider(limits={"memory_mb": 400}), len(supervisor.pod_pids())
    name = new_name()
    await provider.create(name, "", standby=True)
    hand = Hand(client, provider, name)
    await hand.address()
    small = len(supervisor.pod_pids()) - before
    began = time.monotonic()
    assert await provider.promote(name) == ""
    took_s = time.monotonic() - began
    assert took_s < 5, f"{took_s:.3f} s: a promotion is a room, not a pod"

    async def spare_is_made() -> bool:
        return len(supervisor.pod_pids()) - before > small

    await wait_until(spare_is_made)
    taken = await hand.run("python3 -c 'x = b\"x\" * 150_000_000; import time; time.sleep(0.3); print(len(x))'")
    assert taken.text == "150000000\n", taken
    assert (await hand.run_on("df -m /dev/shm | tail -1 | (read _ size _; echo $size)")).text == "100\n"
