"""Leases end with their hold, by the index's own clock, and quiet ones are asked about ever less often."""

from fixtures.clocked_index import Clock, ClockedIndex
from fixtures.pods import PROVED, age, claimed, recycle, recycling, released, request, warm
from fixtures.redis import build
from fixtures.waiting import wait_until

from emberpool.pool.index.connection import IndexRedis
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Lost
from emberpool.pool.model.ids import PodName, RequestId
from emberpool.pool.model.state import PodState


async def expiry(index: RedisIndex, name: str) -> int:
    """When a lease expires, index time in ms."""
    lease = await index.lease(RequestId(name))
    assert lease is not None
    return lease.expires_ms


async def test_a_lease_past_its_hold_is_lost(index: RedisIndex) -> None:
    """The pod turns dirty at a higher epoch, and its holder is told that the hold expired."""
    await warm(index, "p1")
    lease = await claimed(index, "r1", hold_s=0, call_limit_s=0)
    assert await index.expire(10) == 1
    pod = await index.pod(PodName("p1"))
    assert pod is not None and (pod.state, pod.epoch) == (PodState.DIRTY, lease.epoch + 1)
    assert await index.claim(request("r1")) == Lost(reason="hold_expired")
    assert await index.claim(request("r1", epoch=lease.epoch)) == Lost(reason="hold_expired")
    record = await index.lease(RequestId("r1"))
    assert record is not None and record.state == "lost"
    assert await index.expire(10) == 0


async def test_a_call_extends_by_its_limit_and_hold(index: RedisIndex) -> None:
    """As a call begins the lease lives for its limit and the hold; as it ends, for the hold."""
    await warm(index, "p1")
    lease = await claimed(index, "r1", hold_s=10, call_limit_s=100)
    began = await expiry(index, "r1")
    await index.end_call(RequestId("r1"), lease.epoch)
    ended = await expiry(index, "r1")
    assert 99_000 < began - ended <= 100_000
    await index.end_call(RequestId("r1"), lease.epoch + 1)
    await index.end_call(RequestId("nobody"), 1)
    assert await expiry(index, "r1") == ended


async def test_a_short_call_does_not_cut_a_long_one(index: RedisIndex) -> None:
    """While a long command runs, shorter calls of the same lease begin and end without bringing its expiry nearer."""
    await warm(index, "p1")
    lease = await claimed(index, "r1", hold_s=10, call_limit_s=1000)
    long = await expiry(index, "r1")
    await claimed(index, "r1", hold_s=10, call_limit_s=5)
    await claimed(index, "r1", hold_s=10, call_limit_s=0)
    assert await expiry(index, "r1") == long
    await index.end_call(RequestId("r1"), lease.epoch)
    assert await expiry(index, "r1") == long
    for _ in range(2):
        await index.end_call(RequestId("r1"), lease.epoch)
        assert await expiry(index, "r1") < long - 900_000


async def test_old_leases_do_not_hide_short_ones(index: RedisIndex) -> None:
    """A page of older leases with a long hold does not keep a younger one with a short hold alive.

    Seen in volcano-sh/agentcube#454: a sweep that read the oldest page and filtered after.
    """
    await index.set_targets(2, 200, 0)
    page = 20
    await warm(index, *(f"p{number}" for number in range(page + 11)))
    for number in range(page + 10):
        await claimed(index, f"old{number}", hold_s=43_200)
    await claimed(index, "young", hold_s=0, call_limit_s=0)
    assert await index.expire(page) == 1
    assert await index.claim(request("young")) == Lost(reason="hold_expired")


async def test_a_page_at_a_time(index: RedisIndex) -> None:
    """More expired leases than fit a page are ended in several calls."""
    await index.set_targets(2, 20, 0)
    await warm(index, *(f"p{number}" for number in range(7)))
    for number in range(7):
        await claimed(index, f"r{number}", hold_s=0, call_limit_s=0)
    assert [await index.expire(3) for _ in range(4)] == [3, 3, 1, 0]


async def test_only_the_index_knows_the_time(index: RedisIndex) -> None:
    """No call takes a time of day from a worker, so a worker's clock cannot make a live lease look dead.

    Seen in gchq/stroom#5772: expiry written and compared with local time.
    """
    await warm(index, "p1")
    await claimed(index, "r1", hold_s=30, call_limit_s=0)
    seconds, _ = await index.redis.commands.time()  # pyright: ignore[reportUnknownMemberType]
    assert abs(await expiry(index, "r1") - (seconds + 30) * 1000) < 5_000


async def test_expiry_pauses_after_an_outage(index: RedisIndex) -> None:
    """If nobody swept for a while, holders could not extend either: for a time nothing expires."""
    quick = RedisIndex(index.redis, "tests", index.name, IndexLimits(outage_ms=1, pause_ms=80))
    await warm(index, "p1")
    await claimed(index, "r1", hold_s=0, call_limit_s=0)
    await index.redis.commands.set(f"{index.base}expired_at", "1", ex=60)
    assert await quick.expire(10) == 0

    async def later() -> bool:
        return await index.expire(10) == 1

    await wait_until(later)


async def test_idle_pods_retire_past_their_keep_alive(index: RedisIndex) -> None:
    """A used pod whose keep-alive is over drains; a fresh one stays."""
    await warm(index, "p1", "p2")
    pod = (await claimed(index, "r1")).pod.name
    await released(index, "r1")
    started = await recycling(index, pod)
    await index.finish_recycle(pod, started.epoch, PROVED, 0, 100)
    assert await index.retire_idle(10) == [pod]
    assert (await index.counts()).idle_fresh == 1


async def test_idle_pods_above_the_ceiling_retire(index: RedisIndex) -> None:
    """When the ceiling sinks, as many idle pods drain as are too many, in pages."""
    await warm(index, "p1", "p2", "p3", "p4")
    await claimed(index, "r1")
    await index.set_targets(2, 2, 0)
    assert len(await index.retire_idle(1)) == 1
    assert len(await index.retire_idle(10)) == 1
    assert await index.retire_idle(10) == []


async def test_quiet_leases_are_due_once_per_gap(index: RedisIndex) -> None:
    """A lease without a call is due after the first gap, and then not again before the gap has doubled."""
    await warm(index, "p1")
    await claimed(index, "r1")
    assert await index.quiet_leases(30, 10) == []

    async def due() -> bool:
        return [lease.request_id for lease in await index.quiet_leases(0.05, 10)] == ["r1"]

    await wait_until(due)
    assert await index.quiet_leases(0.05, 10) == []
    record = await index.lease(RequestId("r1"))
    assert record is not None and record.quiet_ms >= 50
    await wait_until(due)


async def test_the_gap_doubles_up_to_its_limit(index: RedisIndex) -> None:
    """The gap between two questions doubles and stays at its widest."""
    await warm(index, "p1")
    await claimed(index, "r1")
    redis = index.redis.commands
    gaps: list[int] = []
    for _ in range(6):
        await redis.zadd(f"{index.base}quiet", {"r1": 0})
        assert len(await index.quiet_leases(30, 10)) == 1
        gaps.append(int(await redis.hget(f"{index.base}lease:r1", "gap") or 0))
    assert gaps == [30_000, 60_000, 120_000, 240_000, 300_000, 300_000]


async def test_waits_are_asked_about_too(index: RedisIndex) -> None:
    """A request in line is due like a lease; a detached lease is not, nor one that is over."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1")
    await index.claim(request("r2", "b"))
    await index.detach(RequestId("r1"))
    assert [lease.request_id for lease in await index.quiet_leases(0, 10)] == ["r2"]
    await index.release(RequestId("r2"))
    assert await index.quiet_leases(0, 10) == []


async def test_pods_by_how_long_they_are_in_a_state(index: RedisIndex) -> None:
    """Pods are listed longest in their state first, if asked only those that have been in it for some time."""
    await warm(index, "p1", "p2", "p3")
    await age(index, "p2", 60)
    await age(index, "p3", 30)
    assert [pod.name for pod in await index.pods(PodState.IDLE, 2)] == ["p2", "p3"]
    assert [pod.name for pod in await index.pods(PodState.IDLE, 10, older_than_s=45)] == ["p2"]


async def test_looking_after_a_quiet_lease_does_not_lengthen_it(index_redis: IndexRedis) -> None:
    """A hold of 180 s ends 180 s after the last call, however often the lease was looked at, its holder asked about and
    the pool swept meanwhile; and a keep-alive of 180 s counts from the reset alone.

    Seen in lemma-work/lemma-platform#188: cleaning up counted as activity, and doubled the time that was paid for.
    """
    clock = Clock()
    index = ClockedIndex(index_redis, "quiet", IndexLimits(), clock)
    await build(index)
    await warm(index, "p1")
    lease = await claimed(index, "r1", hold_s=180, call_limit_s=60)
    await index.end_call(RequestId("r1"), lease.epoch)
    ends = clock.now + 180_000
    while clock.now < ends:
        assert await index.expire(10) == 0
        await index.quiet_leases(30, 10)
        await index.pods(PodState.LEASED, 10)
        assert await index.retire_idle(10) == []
        clock.now += 5_000
    clock.now += 1
    assert await index.expire(10) == 1

    pod = PodName("p1")
    await recycle(index, pod, keep_alive_s=180)
    ends = clock.now + 180_000
    while clock.now < ends:
        assert await index.retire_idle(10) == []
        await index.counts()
        clock.now += 5_000
    clock.now += 1
    assert await index.retire_idle(10) == [pod]
