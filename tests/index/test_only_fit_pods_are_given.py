"""A pod is given to one holder, when it is fit and while it is there; places are counted by who holds them."""

import asyncio
from pathlib import Path

from fixtures.index_checks import assert_sound, snapshot
from fixtures.pods import age, claimed, ready, recycle, recycling, released, request, used, warm
from fixtures.slow_proxy import slow_proxy
from fixtures.waiting import wait_until

from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Lost, Provision, Wait
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import PodName, RequestId
from emberpool.pool.model.state import PodState


async def test_a_claim_whose_answer_was_lost_has_one_pod(index: RedisIndex, redis_url: str, tmp_path: Path) -> None:
    """The index took a pod and the answer never came: asked again it is the same pod, not a second one.

    Seen in kubernetes-sigs/agent-sandbox#478: adoption succeeded, recording it failed, the next pass adopted again.
    """
    pods = [f"p{number}" for number in range(8)]
    await warm(index, *pods)
    async with slow_proxy(redis_url, tmp_path) as (proxy, url), await connect(url, timeout_s=2) as redis:
        through = RedisIndex(redis, index.deployment, index.name)
        proxy.delay_s = 0.3
        asked = [asyncio.create_task(through.claim(request(f"r{number}"))) for number in range(4)]

        async def taken() -> bool:
            return (await index.counts()).leases == 4

        await wait_until(taken)
        proxy.cut()
        proxy.delay_s = 0
        await asyncio.gather(*asked, return_exceptions=True)
        again = [await claimed(through, f"r{number}") for number in range(4)]
    assert len({claim.pod.name for claim in again}) == 4
    assert (await index.counts()).leases == 4


async def test_what_is_not_ready_is_never_given(index: RedisIndex) -> None:
    """While all warm pods are being replaced, claims wait for a pod that serves; none is given one that does not yet.

    Seen in kubernetes-sigs/agent-sandbox#519: the claim took a spare whose pod did not exist.
    """
    await warm(index, "old1", "old2")
    for name in ("old1", "old2"):
        await index.drain(PodName(name), "replaced")
        await index.reserve_warm(PodName(f"new-{name}"), "base")
    replies = [await index.claim(request(f"r{number}", f"c{number}")) for number in range(12)]
    assert all(isinstance(reply, Wait | Provision) for reply in replies)
    await ready(index, "new-old1")
    answered = [await index.claim(request(f"r{number}", f"c{number}")) for number in range(12)]
    assert [reply.pod.name for reply in answered if isinstance(reply, Claimed)] == ["new-old1"]


async def test_a_draining_pod_is_never_given(index: RedisIndex) -> None:
    """Pods of an old image that are being deleted, or on a node that goes, are passed over by every claim.

    Seen in kubernetes-sigs/agent-sandbox#764 (old spares adopted while they were deleted) and
    kubernetes-sigs/agent-sandbox#1136 (a cordoned node).
    """
    await index.set_targets(2, 20, 0)
    await warm(index, *(f"v1-{number}" for number in range(5)), image="v1")
    await warm(index, *(f"v2-{number}" for number in range(5)), image="v2")
    for number in range(5):
        assert await index.drain(PodName(f"v1-{number}"), "image_changed")
    await index.drain(PodName("v2-0"), "node_cordoned")
    for number in range(4):
        pod = (await claimed(index, f"r{number}", f"c{number}", image="v2")).pod.name
        assert pod.startswith("v2-") and pod != "v2-0"
    assert isinstance(await index.claim(request("r9", "c9", image="v1")), Provision)
    assert isinstance(await index.claim(request("r8", "c8", image="v2")), Provision)


async def test_warm_pods_do_not_age(index: RedisIndex) -> None:
    """A pool that nobody used for hours is still warm, and a lease's time begins with its claim.

    Seen in jaseci-labs/jac#5361: warm pods inherited the job's deadline.
    """
    await warm(index, "p1", "p2")
    for name in ("p1", "p2"):
        await age(index, name, 7_200)
    assert (await index.expire(10), await index.retire_idle(10)) == (0, [])
    await claimed(index, "r1", hold_s=30)
    assert await index.expire(10) == 0
    assert (await index.counts()).idle_fresh == 1


async def test_a_deleted_pods_place_is_free_at_once(index: RedisIndex) -> None:
    """A held pod that vanished no longer counts: its holder is told, and who waits gets the place.

    Seen in opensandbox-group/OpenSandbox#954: the record still counted the deleted pod, so none was made up for it.
    """
    await index.set_targets(2, 1, 1)
    await warm(index, "p1")
    lease = await claimed(index, "r1")
    assert isinstance(await index.claim(request("r2", "b")), Wait)
    await index.pod_gone(PodName("p1"), "deleted")
    assert await index.claim(request("r1", epoch=lease.epoch)) == Lost(reason="deleted")
    assert await index.next_wakes("worker", 5) == ["r2"]
    assert isinstance(await index.claim(request("r2", "b")), Provision)
    assert_sound(await snapshot(index))


async def test_a_half_done_reset_is_known_to_all(index: RedisIndex, redis_url: str) -> None:
    """Whoever was resetting a pod died: every other worker knows it as recycling, and nobody is given it unreset.

    Seen in opensandbox-group/OpenSandbox#723: a rebuilt ledger missed a deletion and handed a used pod on.
    """
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    started = await recycling(index, "p1")
    async with await connect(redis_url) as redis:
        other = RedisIndex(redis, index.deployment, index.name)
        assert [pod.name for pod in await other.pods(PodState.RECYCLING, 10)] == ["p1"]
        assert isinstance(await other.claim(request("r2", "b")), Provision)
        assert not isinstance(await other.claim(request("r3")), Claimed)
        await age(other, "p1", 31)
        again = await recycling(other, "p1")
    assert again.epoch > started.epoch


async def test_a_smaller_pool_lets_running_jobs_finish(index: RedisIndex) -> None:
    """A ceiling below what is held takes no pod from anybody; each drains as it is released.

    Seen in opensandbox-group/OpenSandbox#1433: a changed pool recycled the pods that were in use.
    """
    pods = [f"p{number}" for number in range(5)]
    await warm(index, *pods)
    held = [await claimed(index, f"r{number}") for number in range(5)]
    await index.set_targets(2, 1, 0)
    assert await index.retire_idle(10) == []
    for number, lease in enumerate(held):
        assert (await claimed(index, f"r{number}", epoch=lease.epoch)).pod == lease.pod
    for number, lease in enumerate(held):
        await released(index, f"r{number}")
        expected = "idle" if number == 4 else "must_drain"
        assert (await recycle(index, lease.pod.name)).kind == expected
        if expected == "must_drain":
            await index.pod_gone(lease.pod.name, "over_ceiling")


async def test_places_are_who_holds_them(index: RedisIndex) -> None:
    """Holders that vanish without a release, one in ten, never cost a place for longer than their hold.

    Seen in Runfusion/Fusion#2265: a counter lost slots until all 24 were busy and nothing ran.
    """
    await index.set_targets(2, 4, 0)
    await warm(index, "p0", "p1", "p2", "p3")
    for number in range(200):
        vanishes = number % 10 == 0
        lease = await claimed(index, f"r{number}", hold_s=0 if vanishes else 60, call_limit_s=0 if vanishes else 5)
        assert (await index.counts()).leases == 1
        if vanishes:
            assert await index.expire(10) == 1
        else:
            await released(index, f"r{number}")
        await recycle(index, lease.pod.name, max_uses=10_000)
    counts = await index.counts()
    assert (counts.leases, counts.by_state[PodState.IDLE]) == (0, 4)
    assert_sound(await snapshot(index))


async def test_a_used_pod_that_was_given_back_counts_once(index: RedisIndex) -> None:
    """A release that is repeated while the pod has its next holder frees nothing of that holder's."""
    await warm(index, "p1")
    await used(index, "r1")
    lease = await claimed(index, "r2")
    assert (await index.release(RequestId("r1"))).kind == "nothing_held"
    assert (await claimed(index, "r2", epoch=lease.epoch)).pod.name == "p1"
    assert (await index.counts()).leases == 1


async def test_many_tasks_on_two_connections_never_stall(index: RedisIndex, redis_url: str, tmp_path: Path) -> None:
    """Fifty tasks, two connections, the line cut again and again: each call ends, within the time that it may take.

    Seen in redis/redis-py#3056: a task that acquired the pool's condition twice hung all others.
    """
    await warm(index, "p1")
    async with slow_proxy(redis_url, tmp_path) as (proxy, url), await connect(url, 2, timeout_s=5) as redis:
        through = RedisIndex(redis, index.deployment, index.name)
        good = 0

        async def work() -> None:
            nonlocal good
            for _ in range(20):
                try:
                    await through.counts()
                    good += 1
                except PoolUnavailable:
                    await asyncio.sleep(0)

        async def cuts() -> None:
            while True:
                await asyncio.sleep(0.03)
                proxy.cut()

        cutting = asyncio.create_task(cuts())
        async with asyncio.timeout(60):
            await asyncio.gather(*(work() for _ in range(50)))
        cutting.cancel()
        assert good > 500
        assert (await through.counts()).idle_fresh == 1
