"""emberd itself decides who may use the pod: an index that errs costs a retry, never isolation."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fixtures.emberd import POOL_KEY, EmberdProcess, Lease, Starter, new_id, open_lease, reset

from emberpool.pool.client.emberd_client import EmberdClient, pod_key
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import PodRefused

TRUE = Command(argv=("true",))


@pytest.fixture
def emberd(emberds: Starter) -> Iterator[EmberdProcess]:
    """An emberd of the test's own."""
    started = emberds.start("plain")
    yield started
    started.stop()


async def refusal(lease: Lease, **changes: object) -> str:
    """The word with which emberd refuses a call under a changed proof."""
    with pytest.raises(PodRefused) as caught:
        await lease.client.run(lease.pod, replace(lease.proof, **changes), new_id(), TRUE)  # type: ignore[arg-type]
    return caught.value.word


async def test_the_first_call_opens_the_pod(emberd: EmberdProcess, emberd_client: EmberdClient) -> None:
    """clean to held, under the claim's tag, epoch, lease and hold."""
    before = await emberd_client.state(emberd.address.name, emberd.address.endpoint)
    assert (before.state, before.epoch, before.tag, before.lease, before.uses) == ("clean", 0, "", "", 0)
    lease = open_lease(emberd, emberd_client)
    await lease.sh("true")
    after = await emberd_client.state(emberd.address.name, emberd.address.endpoint)
    assert (after.state, after.epoch, after.tag) == ("held", lease.proof.epoch, lease.proof.tag)
    assert (after.lease, after.hold_s, after.uses) == (lease.proof.request_id, 900.0, 1)
    assert (after.boot_id, after.uid, after.pod) == (emberd.address.boot_id, emberd.address.uid, emberd.address.name)


async def test_others_are_refused_while_it_is_held(emberd: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Another lease at the same epoch, another tag, a lower epoch, a higher one: each by its word."""
    emberd.epoch = 5
    lease = open_lease(emberd, emberd_client)
    await lease.sh("true")
    assert await refusal(lease, request_id="other") == "other_lease"
    assert await refusal(lease, tag="b" * 32) == "other_tag"
    assert await refusal(lease, epoch=lease.proof.epoch - 1) == "stale_epoch"
    assert await refusal(lease, epoch=lease.proof.epoch + 1, request_id="other") == "not_clean"
    assert (await lease.sh("true")).ok


async def test_a_used_pod_serves_its_own_tag_only(emberd: EmberdProcess, emberd_client: EmberdClient) -> None:
    """There is no way from idle tagged A to leased by B."""
    lease = open_lease(emberd, emberd_client)
    await lease.sh("true")
    await reset(lease)
    other = open_lease(emberd, emberd_client, tag="b" * 32)
    assert await refusal(other) == "other_tag"
    assert (await open_lease(emberd, emberd_client).sh("true")).ok


async def test_a_fence_ends_the_lease_and_what_runs(lease: Lease) -> None:
    """Nothing of a job runs on, waiting callers learn that it is over, and only a recycle opens the pod again."""
    command = Command(shell="touch up; while :; do echo x >> f; sleep 0.01; done")
    running = asyncio.ensure_future(lease.client.run(lease.pod, lease.proof, new_id(), command))
    await lease.sh("until [ -e up ]; do sleep 0.02; done")
    lease.emberd.epoch += 1
    state = await lease.client.fence(lease.pod, lease.emberd.epoch)
    assert (state.state, state.epoch, state.lease) == ("dirty", lease.emberd.epoch, "")
    with pytest.raises(PodRefused) as caught:
        await running
    assert caught.value.word == "lease_over" and caught.value.sent
    assert await refusal(lease) == "stale_epoch"
    assert await refusal(lease, epoch=lease.emberd.epoch + 1) == "not_clean"
    with pytest.raises(PodRefused):
        await lease.read("f")


async def test_a_fence_never_goes_back(emberd: EmberdProcess, emberd_client: EmberdClient) -> None:
    """A late fence of an older epoch is refused and changes nothing."""
    emberd.epoch = 7
    lease = open_lease(emberd, emberd_client)
    await lease.sh("true")
    with pytest.raises(PodRefused) as caught:
        await emberd_client.fence(emberd.address, 6)
    assert caught.value.word == "stale_epoch"
    assert (await lease.sh("true")).ok


async def test_a_recycle_needs_its_fence(emberd: EmberdProcess, emberd_client: EmberdClient) -> None:
    """A held pod, or one fenced at another epoch, is not reset."""
    lease = open_lease(emberd, emberd_client)
    await lease.sh("true")
    for epoch in (emberd.epoch, emberd.epoch + 1):
        with pytest.raises(PodRefused) as caught:
            await emberd_client.recycle(emberd.address, epoch)
        assert caught.value.word == "not_fenced"
    await emberd_client.fence(emberd.address, 9)
    with pytest.raises(PodRefused):
        await emberd_client.recycle(emberd.address, 8)


async def test_fence_and_recycle_may_be_repeated(emberd: EmberdProcess, emberd_client: EmberdClient) -> None:
    """A retry gets the same attestation; uses are counted once."""
    lease = open_lease(emberd, emberd_client)
    await lease.sh("true")
    for _ in range(2):
        await emberd_client.fence(emberd.address, 4)
    first = await emberd_client.recycle(emberd.address, 4)
    assert first == await emberd_client.recycle(emberd.address, 4)
    assert first.holds and first.uses == 1
    state = await emberd_client.state(emberd.address.name, emberd.address.endpoint)
    assert (state.state, state.tag, state.attestation) == ("clean", lease.proof.tag, first)


async def test_a_restart_while_held_is_dirty(emberds: Starter, emberd_client: EmberdClient) -> None:
    """It keeps tag and epoch, tells callers of the old boot so, and a recycle makes it clean."""
    first = emberds.start("plain")
    lease = open_lease(first, emberd_client)
    await lease.sh("echo left > f")
    first.process.kill()
    first.process.wait()
    second = emberds.start("plain", first.folder, pod=first.address.name, key=key_of(first))
    address = second.address.model_copy(update={"name": first.address.name})
    state = await emberd_client.state(address.name, address.endpoint)
    assert (state.state, state.tag, state.epoch) == ("dirty", lease.proof.tag, lease.proof.epoch)
    assert await refusal(lease) == "other_boot"
    await emberd_client.fence(address, state.epoch + 1)
    attestation = await emberd_client.recycle(address, state.epoch + 1)
    assert attestation.holds
    assert not (second.scratch / "work" / "f").exists()


async def test_a_restart_of_a_reset_pod_remembers_its_caller(emberds: Starter, emberd_client: EmberdClient) -> None:
    """A pod that was used, reset and then restarted is not fresh: it keeps its tag, and another caller is refused."""
    first = emberds.start("plain")
    lease = open_lease(first, emberd_client)
    await lease.sh("true")
    epoch = lease.proof.epoch + 1
    await emberd_client.fence(first.address, epoch)
    assert (await emberd_client.recycle(first.address, epoch)).holds
    first.process.kill()
    first.process.wait()
    second = emberds.start("plain", first.folder, pod=first.address.name, key=key_of(first))
    state = await emberd_client.state(first.address.name, second.address.endpoint)
    assert (state.state, state.tag, state.epoch) == ("dirty", lease.proof.tag, epoch)


def key_of(emberd: EmberdProcess) -> str:
    """The key in hex that this emberd was started with."""
    return pod_key(POOL_KEY, emberd.address.name).hex()
