"""A local pod whose container is started anew where it is: the same pod, with nothing of what was in it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from fixtures.hand import Hand
from fixtures.images import make_image
from fixtures.local import MakeProvider, SupervisorProcess, new_pod, until_it_failed
from fixtures.processes import gone

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.errors import PoolUnavailable


@pytest.fixture
async def client(supervisor: SupervisorProcess) -> AsyncIterator[EmberdClient]:
    """A client with the supervisor's pool key."""
    async with EmberdClient(supervisor.key) as made:
        yield made


async def anew(hand: Hand) -> str:
    """Fence the pod and have it started anew."""
    hand.epoch += 1
    await hand.client.fence(await hand.address(), hand.epoch)
    return await hand.provider.restart(hand.name, hand.epoch)


async def test_a_pod_comes_back_empty_and_fenced(local_provider: MakeProvider, client: EmberdClient) -> None:
    """Name, UID and endpoint stay; processes and files are gone, also such as emberd cannot touch any more. For whoever
    watches it was away, and never failed."""
    provider = local_provider()
    hand = Hand(client, provider, await new_pod(provider))
    before = await hand.address()
    assert (await hand.run("echo left > /work/f; (setsid sleep 60 &)")).ok
    pod = await provider.look_up(hand.name)
    assert pod is not None
    watched = asyncio.create_task(until_it_failed(provider, hand.name))
    assert await anew(hand) == ""
    after, now = await hand.address(), await provider.look_up(hand.name)
    assert (after.uid, after.endpoint) == (before.uid, before.endpoint) and after.boot_id != before.boot_id
    assert now is not None and now.pid != pod.pid and gone(pod.pid)
    state = await client.state(hand.name, after.endpoint)
    assert (state.state, state.epoch, state.tag) == ("dirty", hand.epoch, "a" * 32)
    await hand.reset()
    assert (await hand.run("ls /work")).text == ""
    await provider.delete(hand.name)
    assert (await asyncio.wait_for(watched, 10))[-1].reason in ("gone", "exited: killed by SIGKILL")


async def test_it_is_started_anew_once_in_a_while(local_provider: MakeProvider, client: EmberdClient) -> None:
    """A pod that needs it again soon is better replaced."""
    provider = local_provider()
    hand = Hand(client, provider, await new_pod(provider))
    assert (await hand.run("true")).ok
    assert await anew(hand) == ""
    assert "within the last 600 s" in await anew(hand)
    await hand.reset()
    assert (await hand.run("echo on")).text == "on\n"


async def test_a_pod_with_another_image_by_now_is_not(
    local_provider: MakeProvider, client: EmberdClient, supervisor: SupervisorProcess
) -> None:
    """Its emberd would begin with the image that it was started with, and the index would not know."""
    root = supervisor.root / "image-red"
    provider = local_provider(images={"red": str(root if root.exists() else make_image(root, "red"))})
    hand = Hand(client, provider, await new_pod(provider))
    assert await hand.swap("red") == ""
    assert (await hand.run("true")).ok
    assert "image 'base'" in await anew(hand)


async def test_a_pod_that_is_deleted_meanwhile_is_gone(
    local_provider: MakeProvider, client: EmberdClient, supervisor: SupervisorProcess
) -> None:
    """At any moment of the restart: nothing of it is left."""
    provider = local_provider()
    hands = [Hand(client, provider, await new_pod(provider)) for _ in range(4)]
    for hand in hands:
        assert (await hand.run("true")).ok
        hand.epoch += 1
        await client.fence(await hand.address(), hand.epoch)
    for number, hand in enumerate(hands):
        restarting = asyncio.create_task(provider.restart(hand.name, hand.epoch))
        await asyncio.wait({restarting}, timeout=number * 0.05)
        await provider.delete(hand.name)
        with suppress(PoolUnavailable):  # it does not answer any more, if it was asked too late
            await asyncio.wait_for(restarting, 10)
        assert await provider.look_up(hand.name) is None
        assert not (supervisor.data / "pods" / hand.name).exists()
