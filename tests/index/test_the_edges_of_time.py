"""Where a time or a number decides, the last moment on one side and the first on the other are told apart.

On a clock that only the test turns, so that the moments are exact.
"""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fixtures.clocked_index import Clock, ClockedIndex
from fixtures.index_checks import assert_sound, snapshot
from fixtures.index_dump import drop
from fixtures.pods import (
    ask_gang,
    claimed,
    gang_of,
    ready,
    recycle,
    recycling,
    released,
    request,
    used,
    warm,
)
from fixtures.redis import assert_keys_end, build

from emberpool.pool.index.connection import IndexRedis
from emberpool.pool.index.contract import NotDirty, RecycleStarted
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.model.claim import Expired, Provision, Wait
from emberpool.pool.model.ids import PodName, RequestId

LIMITS = IndexLimits()


class Turned(ClockedIndex):
    """An index and the clock that it goes by."""

    def __init__(self, redis: IndexRedis) -> None:
        self.clock = Clock()
        super().__init__(redis, f"edges-{uuid.uuid4().hex[:12]}", LIMITS, self.clock)

    def turn(self, ms: int) -> None:
        """Let time pass."""
        self.clock.now += ms


@pytest_asyncio.fixture
async def index(index_redis: IndexRedis) -> AsyncIterator[Turned]:
    """An index with a ceiling of 8, on a clock of the test's own."""
    pool = Turned(index_redis)
    await build(pool)
    yield pool
    assert_sound(await snapshot(pool))
    await assert_keys_end(index_redis, pool)
    await drop(pool)


async def drained(index: Turned, name: str, caller: str = "b") -> str | None:
    """The pod that a claim, which has to wait, set draining."""
    reply = await index.claim(request(name, caller))
    assert isinstance(reply, Wait), reply
    return reply.drain


async def test_a_pod_stays_for_its_residency(index: Turned) -> None:
    """An idle pod is safe until the millisecond before its residency is over, and no longer."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await used(index, "r1")
    index.turn(LIMITS.residency_ms - 1)
    assert await drained(index, "r2") is None
    index.turn(1)
    assert await drained(index, "r2") == "p1"


@pytest.mark.parametrize(("longer_ms", "goes"), [(0, "used"), (1, "fresh")])
async def test_a_fresh_pod_is_worth_its_keep(index: Turned, longer_ms: int, goes: str) -> None:
    """A pod that nobody used goes after a used one that is kept as long as it would be, and before one kept longer."""
    await index.set_targets(2, 2, 0)
    await warm(index, "used")
    await claimed(index, "r1")
    await released(index, "r1")
    await recycle(index, "used", keep_alive_s=(LIMITS.fresh_keep_ms + longer_ms) / 1000)
    await warm(index, "fresh")
    index.turn(LIMITS.residency_ms)
    reply = await index.claim(request("r2", "b", image="other"))
    assert isinstance(reply, Wait) and reply.drain == goes


@pytest.mark.parametrize(("ago_ms", "kind"), [(LIMITS.hand_over_ms - 1, "wait"), (LIMITS.hand_over_ms, "provision")])
async def test_a_reset_is_waited_for_just_so_long(index: Turned, ago_ms: int, kind: str) -> None:
    """A pod of the tag that has been dirty for less than the limit is reserved; at the limit it is passed over."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    index.turn(ago_ms)
    assert (await index.claim(request("r2"))).kind == kind


async def test_a_reserved_reset_is_given_up_at_the_limit(index: Turned) -> None:
    """Who reserved a pod that is being reset waits for it until the limit, and then takes the next step."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    assert isinstance(await index.claim(request("r2")), Wait)
    index.turn(LIMITS.hand_over_ms - 1)
    assert isinstance(await index.claim(request("r2")), Wait)
    index.turn(1)
    assert isinstance(await index.claim(request("r2")), Provision)


async def test_a_recycle_is_stuck_at_its_limit(index: Turned) -> None:
    """Until then nobody else may take it over."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    await recycling(index, "p1")
    index.turn(LIMITS.stuck_ms - 1)
    assert isinstance(await index.begin_recycle(PodName("p1")), NotDirty)
    index.turn(1)
    assert isinstance(await index.begin_recycle(PodName("p1")), RecycleStarted)


@pytest.mark.parametrize(("longer_ms", "ended"), [(0, 1), (1, 0)])
async def test_an_outage_is_longer_than_its_limit(index: Turned, longer_ms: int, ended: int) -> None:
    """A sweep that comes just in time ends what is over; one that comes later ends nothing for a while."""
    await warm(index, "p1")
    await index.expire(10)
    await claimed(index, "r1", hold_s=0, call_limit_s=0)
    index.turn(LIMITS.outage_ms + longer_ms)
    assert await index.expire(10) == ended
    index.turn(LIMITS.pause_ms + 1)
    assert ended or await index.expire(10) == 0, "that is an outage again"


async def test_a_lease_ends_at_its_expiry(index: Turned) -> None:
    """Not a millisecond before."""
    await warm(index, "p1")
    await index.expire(10)
    await claimed(index, "r1", hold_s=2, call_limit_s=3)
    index.turn(4_999)
    assert await index.expire(10) == 0
    index.turn(1)
    assert await index.expire(10) == 1


async def test_a_wait_ends_at_its_deadline(index: Turned) -> None:
    """Not a millisecond before; then by its own claim as by the sweep."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "z")
    for name in ("r1", "r2"):
        await index.claim(request(name, "b", wait_timeout_s=5))
    await index.expire(10)
    index.turn(4_999)
    assert isinstance(await index.claim(request("r1", "b")), Wait)
    assert await index.expire(10) == 0
    index.turn(1)
    assert await index.claim(request("r1", "b")) == Expired()
    assert await index.expire(10) == 1


@pytest.mark.parametrize("detached", ["before", "after"])
async def test_a_detached_reservation_ends_at_its_deadline(index: Turned, detached: str) -> None:
    """No sweep asks for its holder, so a pod that is set aside for one whom nobody adopts is free again then."""
    await index.expire(10)
    await index.reserve_warm(PodName("p1"), "base")
    await ready(index, "p1", standby=True)
    if detached == "before":
        await index.set_targets(2, 0, 0)
        assert isinstance(await index.claim(request("r1", image="other", wait_timeout_s=25, hold_s=20)), Wait)
        assert await index.detach(RequestId("r1"))
        await index.set_targets(3, 2, 0)
    else:
        assert (await index.claim(request("r1", wait_timeout_s=25, hold_s=20))).kind == "promote"
        assert await index.detach(RequestId("r1"))
    lease = await index.lease(RequestId("r1"))
    assert lease is not None and lease.state == "reserved"
    index.turn(24_999)
    assert await index.expire(10) == 0
    index.turn(1)
    assert await index.expire(10) == 1
    pod = await index.pod(PodName(lease.pod))
    assert pod is not None and pod.reserved_for == ""


async def test_one_detached_past_its_deadline_has_its_hold_to_be_adopted(index: Turned) -> None:
    """While its pod is made a request has no deadline; one that passed meanwhile does not end what is handed on."""
    await index.expire(10)
    asked = request("r1", wait_timeout_s=25, hold_s=20)
    assert (await index.claim(asked)).kind == "provision"
    index.turn(29_000)
    assert await index.expire(10) == 0
    index.turn(29_000)
    assert await index.detach(RequestId("r1"))
    assert await index.expire(10) == 0
    index.turn(19_999)
    assert await index.expire(10) == 0
    assert (await index.claim(asked)).kind == "provision"
    index.turn(1)
    assert await index.expire(10) == 1
    lease = await index.lease(RequestId("r1"))
    assert lease is None


async def test_an_adopted_reservation_has_no_deadline(index: Turned) -> None:
    """Who adopts a sandbox whose pod is being made gets it however long that takes, as its first holder would have."""
    await index.expire(10)
    await index.set_targets(2, 1, 0)
    assert (await index.claim(request("r1", wait_timeout_s=25))).kind == "provision"
    assert await index.detach(RequestId("r1"))
    assert await index.adopt(RequestId("r1"), request("r2").holder)
    index.turn(25_000)
    assert await index.expire(10) == 0
    assert (await index.claim(request("r1", wait_timeout_s=25))).kind == "provision"


async def test_a_kept_pod_retires_at_its_deadline(index: Turned) -> None:
    """Not a millisecond before its keep-alive is over."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    await recycle(index, "p1", keep_alive_s=5)
    index.turn(4_999)
    assert await index.retire_idle(10) == []
    index.turn(1)
    assert await index.retire_idle(10) == ["p1"]


@pytest.mark.parametrize(("longer_ms", "kind"), [(0, "closed"), (1, "wait")])
async def test_an_answer_to_late_questions_outlives_a_rebuild_to_its_last_moment(
    index: Turned, longer_ms: int, kind: str
) -> None:
    """A request that ended is known to have ended for as long as was said, also after the index was made anew."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    index.turn(LIMITS.tombstone_ms + longer_ms)
    await index.redis.commands.delete(f"{index.base}generation")
    assert await index.try_rebuild_lock("worker", 30)
    assert await index.rebuild("worker", [])
    assert (await index.claim(request("r1"))).kind == kind


async def test_a_gang_may_be_as_large_as_the_ceiling(index: Turned) -> None:
    """One of the ceiling's size is served, a larger one is told so; a ceiling that sinks to its size ends nothing."""
    await index.set_targets(2, 3, 0)
    gang = gang_of("g", 3)
    steps = await ask_gang(index, gang)
    assert all(isinstance(step, Provision) for step in steps), steps
    assert await index.claim(request("h-0", "b", gang=gang_of("h", 4))) == Expired(reason="gang_over_ceiling")
    await ask_gang(index, gang_of("i", 2), "c")
    await index.set_targets(3, 2, 0)
    assert [reply.kind for reply in await ask_gang(index, gang_of("i", 2), "c")] == ["wait", "wait"]
