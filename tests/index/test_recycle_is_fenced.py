"""A used pod comes back only through one proved recycle, at an epoch that only rises."""

from fixtures.pods import PROVED, UNPROVED, age, claimed, recycle, recycling, released, request, tag_of, used, warm

from emberpool.pool.index.contract import NotDirty, Stale
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Source, Wait
from emberpool.pool.model.ids import BootId, PodName, RequestId
from emberpool.pool.model.recycle import Attestation, RecycleTier
from emberpool.pool.model.state import PodState


async def test_the_epoch_only_rises(index: RedisIndex) -> None:
    """Claim, release and every start of a recycle raise the epoch: a claim to the time at least, the others by one."""
    await warm(index, "p1")
    seen: list[int] = []
    for name in ("r1", "r2"):
        seen.append((await claimed(index, name)).epoch)
        seen.append((await released(index, name)).epoch)
        seen.append((await recycling(index, "p1")).epoch)
        await index.finish_recycle(PodName("p1"), seen[-1], PROVED, 60, 100)
    assert seen == sorted(set(seen)) and seen[0] > 1_600_000_000_000
    assert [seen[1] - seen[0], seen[2] - seen[0], seen[4] - seen[3], seen[5] - seen[3]] == [1, 2, 1, 2]


async def test_one_recycler_at_a_time(index: RedisIndex) -> None:
    """A second recycler is told that the pod is not dirty."""
    await warm(index, "p1")
    await claimed(index, "r1")
    assert await index.begin_recycle(PodName("p1")) == NotDirty()
    await released(index, "r1")
    await recycling(index, "p1")
    assert await index.begin_recycle(PodName("p1")) == NotDirty()
    assert await index.begin_recycle(PodName("nobody")) == NotDirty()


async def test_a_stuck_recycle_is_taken_again(index: RedisIndex) -> None:
    """After 30 s another recycler takes the pod, at a higher epoch; the first one's end is Stale then."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    first = await recycling(index, "p1")
    await age(index, "p1", 29)
    assert await index.begin_recycle(PodName("p1")) == NotDirty()
    await age(index, "p1", 2)
    second = await recycling(index, "p1")
    assert second.epoch == first.epoch + 1
    assert await index.finish_recycle(PodName("p1"), first.epoch, PROVED, 60, 100) == Stale()
    assert (await index.finish_recycle(PodName("p1"), second.epoch, PROVED, 60, 100)).kind == "idle"


async def test_an_unproved_reset_drains(index: RedisIndex) -> None:
    """A pod that does not prove its reset is not let again, and while it is there the index knows why."""
    cases = (
        (UNPROVED, "not_attested: scratch"),
        (Attestation(tier=RecycleTier.NONE, checks={"x": True}), "not_attested"),
    )
    for number, (proof, reason) in enumerate(cases):
        await warm(index, f"p{number}")
        pod = (await claimed(index, f"r{number}")).pod.name
        await released(index, f"r{number}")
        reply = await recycle(index, pod, proof=proof)
        assert reply.kind == "must_drain" and reply.reason == reason
        assert [pod.reason for pod in await index.pods(PodState.DRAINING, 9) if pod.name == f"p{number}"] == [reason]


async def test_a_pod_that_was_started_anew_has_another_boot(index: RedisIndex) -> None:
    """Whoever gets it next is told of the emberd that is there now; a recycle that says nothing changes nothing."""
    await warm(index, "p1")
    boots = [(await claimed(index, "r1")).pod.boot_id]
    for number, boot in ((2, BootId("anew")), (3, BootId(""))):
        await released(index, f"r{number - 1}")
        started = await recycling(index, "p1")
        await index.finish_recycle(PodName("p1"), started.epoch, PROVED, 60, 100, "", boot)
        boots.append((await claimed(index, f"r{number}")).pod.boot_id)
    assert boots[0] != "anew" and boots[1:] == ["anew", "anew"]


async def test_an_unproved_reset_sends_its_waiter_on(index: RedisIndex) -> None:
    """Who had reserved that pod stands in line again and is woken."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    await index.claim(request("r2"))
    await recycle(index, "p1", proof=UNPROVED)
    assert await index.next_wakes("worker", 1) == ["r2"]
    assert (await index.counts()).waiting == 1


async def test_a_worn_out_pod_drains(index: RedisIndex) -> None:
    """A pod that has served its number of leases is rotated out."""
    await warm(index, "p1")
    await used(index, "r1")
    await claimed(index, "r2")
    await released(index, "r2")
    reply = await recycle(index, "p1", max_uses=2)
    assert reply.kind == "must_drain" and reply.reason == "worn_out"


async def test_a_pod_drains_for_a_reason_of_the_callers(index: RedisIndex) -> None:
    """Policy is not the index's: whoever recycles may say that the pod is to go, and why; a bad proof goes first."""
    for pod, proof, reason in (("p1", PROVED, "too_old"), ("p2", UNPROVED, "not_attested: scratch")):
        await warm(index, pod)
        await claimed(index, f"r-{pod}")
        await released(index, f"r-{pod}")
        reply = await recycle(index, pod, proof=proof, retire="too_old")
        assert reply.kind == "must_drain" and reply.reason == reason


async def test_above_the_ceiling_it_drains(index: RedisIndex) -> None:
    """A pod that comes back to a pool that shrank drains, and no more than are too many."""
    await warm(index, "p1", "p2")
    for name in ("r1", "r2"):
        await claimed(index, name)
    await index.set_targets(2, 1, 0)
    pods = [(await released(index, name)).pod for name in ("r1", "r2")]
    assert [(await recycle(index, pod)).kind for pod in pods] == ["must_drain", "idle"]


async def test_handed_to_a_waiter_of_its_tag(index: RedisIndex) -> None:
    """A recycled pod goes to the first that waits with its tag."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1")
    await index.claim(request("r2"))
    await index.claim(request("r3"))
    await released(index, "r1")
    reply = await recycle(index, "p1")
    assert reply.kind == "handed_to" and reply.request_id == "r2"
    assert (await claimed(index, "r2")).source is Source.REUSE


async def test_drained_for_a_waiter_of_another_tag(index: RedisIndex) -> None:
    """A recycled pod that only others wait for drains, one per waiter that has no place coming."""
    await index.set_targets(2, 2, 0)
    await warm(index, "p1", "p2")
    for name in ("r1", "r2"):
        await claimed(index, name)
    assert isinstance(await index.claim(request("r3", "b")), Wait)
    pods = [(await released(index, name)).pod for name in ("r1", "r2")]
    assert [(await recycle(index, pod)).kind for pod in pods] == ["must_drain", "idle"]


async def test_a_waiter_for_another_image_of_the_tag_is_woken(index: RedisIndex) -> None:
    """A recycled pod whose tag waits for another image goes idle, and the waiter swaps it."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1")
    await index.claim(request("r2", image="other"))
    await released(index, "r1")
    assert (await recycle(index, "p1")).kind == "idle"
    assert await index.next_wakes("worker", 1) == ["r2"]
    assert (await index.claim(request("r2", image="other"))).kind == "swap"


async def test_idle_after_recycle_keeps_its_tag(index: RedisIndex) -> None:
    """A recycled pod is idle with the tag of its last caller."""
    await warm(index, "p1")
    await used(index, "r1")
    pod = await index.pod(PodName("p1"))
    assert pod is not None and (pod.state, pod.tag, pod.uses) == (PodState.IDLE, tag_of("a"), 1)


async def test_draining_spares_what_is_held(index: RedisIndex) -> None:
    """A pod that is held or reserved is not drained; an idle or dirty one is, once or twice."""
    await warm(index, "p1", "p2")
    pod = (await claimed(index, "r1")).pod.name
    assert not await index.drain(pod, "operator")
    assert not await index.drain(PodName("nobody"), "operator")
    await released(index, "r1")
    await index.claim(request("r2"))
    lease = await index.lease(RequestId("r2"))
    assert lease is not None and lease.state == "reserved"
    assert not await index.drain(pod, "operator")
    await index.release(RequestId("r2"))
    assert await index.drain(pod, "operator") and await index.drain(pod, "again")
    record = await index.pod(pod)
    assert record is not None and (record.state, record.reason) == (PodState.DRAINING, "operator")
