"""Waiting is fair between callers, in order within one, and ends at its deadline."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from fixtures.pods import age, ask_gang, claimed, gang_of, ready, recycle, released, request, used, warm
from fixtures.waiting import wait_until

from emberpool.pool.index.caller import Argument, ScriptCaller
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.model.line import after_grant
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.index.scripts import Script
from emberpool.pool.model.claim import Claimed, Expired, Provision, Wait
from emberpool.pool.model.ids import PodName, RequestId
from emberpool.pool.model.state import PodState


async def served_in_order(index: RedisIndex, pod: str, rounds: int) -> list[str]:
    """Let the pod's place become free again and again; which requests get it, in order."""
    order: list[str] = []
    for _ in range(rounds):
        await ready(index, pod)
        await index.pod_gone(PodName(pod), "test")
        starting = await index.pods(PodState.STARTING, 10)
        assert len(starting) == 1
        pod = starting[0].name
        order.append(starting[0].reserved_for)
    return order


async def test_first_come_first_served_within_a_caller(index: RedisIndex) -> None:
    """Requests of one caller are served in the order in which they came."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    for name in ("r1", "r2", "r3"):
        await index.claim(request(name))
    assert await served_in_order(index, "p1", 3) == ["r1", "r2", "r3"]


async def test_priority_goes_first_within_a_caller(index: RedisIndex) -> None:
    """A higher priority is served first, but only among its caller's requests."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    await index.claim(request("a1"))
    await index.claim(request("a2", priority=5))
    await index.claim(request("b1", "b"))
    assert await served_in_order(index, "p1", 3) == ["a2", "b1", "a1"]


async def test_a_crowd_does_not_starve_a_single(index: RedisIndex) -> None:
    """A caller with twenty waiting requests and one with two are served in turn."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    for number in range(20):
        await index.claim(request(f"a{number}"))
    for number in range(2):
        await index.claim(request(f"b{number}", "b"))
    assert await served_in_order(index, "p1", 5) == ["a0", "b0", "a1", "b1", "a2"]


class _Batch(ScriptCaller):
    """Gathers scripts and sends them all at once, for answers that are known beforehand."""

    def __init__(self, index: RedisIndex, script: Script) -> None:
        super().__init__(index.redis, index.base, IndexLimits())
        self._script = script
        self._pipe = index.redis.commands.pipeline(transaction=False)

    async def __call__(self, script: Script, *arguments: Argument) -> Sequence[str]:
        """Keep it for later."""
        assert script is self._script
        self._pipe.evalsha(self._hashes[script], 1, self._generation_key, *map(str, arguments))
        return ["wait", "0", ""]

    async def send(self) -> list[Any]:
        """The replies."""
        return await self._pipe.execute()


def _crowd(index: RedisIndex) -> tuple[RedisIndex, _Batch]:
    """The same index, whose claims wait to be sent together."""
    batch, crowd = _Batch(index, Script.CLAIM), RedisIndex(index.redis, index.deployment, index.name)
    crowd._run = batch  # pyright: ignore[reportPrivateUsage]
    return crowd, batch


async def test_ten_thousand_do_not_delay_one(index: RedisIndex) -> None:
    """A caller with a single request is served second, whatever another has put in line before it."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    crowd, batch = _crowd(index)
    for number in range(10_000):
        await crowd.claim(request(f"a{number}", wait_timeout_s=3600))
    assert {reply[0] for reply in await batch.send()} == {"wait"}
    assert isinstance(await index.claim(request("b0", "b")), Wait)
    assert (await index.counts()).waiting == 10_001
    assert await served_in_order(index, "p1", 3) == ["a0", "b0", "a1"]


async def test_coming_back_gains_nothing(index: RedisIndex) -> None:
    """A caller that was just served and asks again does not pass one that has waited meanwhile."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    await index.claim(request("b1", "b"))
    await index.claim(request("c1", "c"))
    assert await served_in_order(index, "p1", 1) == ["b1"]
    await index.claim(request("b2", "b"))
    await index.claim(request("c2", "c"))
    assert await served_in_order(index, "pod-b1", 3) == ["c1", "b2", "c2"]


async def test_own_pods_within_the_share(index: RedisIndex) -> None:
    """A caller is handed its own pod past the others for a few grants; then the pod drains and its place is theirs."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "a0")
    await index.claim(request("b1", "b"))
    kinds: list[str] = []
    for number in range(1, 8):
        await index.claim(request(f"a{number}"))
        await released(index, f"a{number - 1}")
        kinds.append((await recycle(index, "p1")).kind)
        if kinds[-1] == "must_drain":
            break
    assert kinds == ["handed_to"] * 5 + ["must_drain"]
    await index.pod_gone(PodName("p1"), "place_needed")
    assert isinstance(await index.claim(request("b1", "b")), Provision)


async def test_a_newcomer_does_not_overtake(index: RedisIndex) -> None:
    """While requests stand in line, a newcomer gets no fresh pod, no starting one and no place that they could use."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    await index.claim(request("b1", "b"))
    await index.set_targets(3, 2, 0)
    assert isinstance(await index.claim(request("c1", "c")), Wait)
    assert isinstance(await index.claim(request("b1", "b")), Provision)


async def test_a_newcomer_may_reuse_its_own(index: RedisIndex) -> None:
    """While others stand in line, a caller within its share takes its own idle pod again."""
    await index.set_targets(2, 2, 0)
    await warm(index, "p1", "p2")
    await claimed(index, "z0", "z")
    await used(index, "a0")
    await index.claim(request("b1", "b"))
    assert isinstance(await index.claim(request("a1")), Claimed)


async def test_a_ready_pod_goes_to_who_waits_for_its_image(index: RedisIndex) -> None:
    """A warm pod that becomes ready while requests wait goes to the first that asks for its image."""
    await index.set_targets(2, 2, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    await index.reserve_warm(PodName("p2"), "base")
    await index.claim(request("x1", "x"))
    await index.claim(request("b1", "b", image="other"))
    await index.release(RequestId("x1"))
    await index.claim(request("c1", "c"))
    reply = await ready(index, "p2")
    assert reply.kind == "handed_to" and reply.request_id == "c1"


async def test_the_line_gives_up_at_the_deadline(index: RedisIndex) -> None:
    """A claim after its deadline is Expired and out of line; it stays so."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    await index.claim(request("r1", wait_timeout_s=0.05))

    async def over() -> bool:
        return await index.claim(request("r1", wait_timeout_s=60)) == Expired()

    await wait_until(over)
    assert (await index.counts()).waiting == 0
    await index.pod_gone(PodName("p1"), "test")
    assert await index.claim(request("r1")) == Expired()


async def test_waits_are_ended_and_woken(index: RedisIndex) -> None:
    """A wait past its deadline is ended by the sweep, and its worker is told."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    await index.claim(request("r1", wait_timeout_s=0))
    assert await index.expire(10) == 1
    assert await index.next_wakes("worker", 1) == ["r1"]
    assert await index.claim(request("r1")) == Expired()


async def test_no_wait_still_gets_what_is_there(index: RedisIndex) -> None:
    """A claim that will not wait gets a warm pod, and may have one made."""
    await warm(index, "p1")
    assert isinstance(await index.claim(request("r1", wait_timeout_s=0)), Claimed)
    for _ in range(2):
        assert isinstance(await index.claim(request("r2", "b", wait_timeout_s=0)), Provision)


async def test_more_places_serve_more_waiters(index: RedisIndex) -> None:
    """Raising the ceiling gives its places to the line at once, in order."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    for number in range(4):
        await index.claim(request(f"a{number}"))
    await index.set_targets(3, 3, 0)
    assert await index.next_wakes("worker", 1) == ["a0", "a1"]
    assert (await index.counts()).waiting == 2


async def test_room_is_made_for_who_waits(index: RedisIndex) -> None:
    """A pod too recently used to be drained when the request came is drained for it by the sweep."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await used(index, "a1")
    assert isinstance(await index.claim(request("b1", "b")), Wait)
    await index.expire(10)
    assert await index.pods(PodState.DRAINING, 10) == []
    await age(index, "p1", 2)
    await index.expire(10)
    assert [pod.name for pod in await index.pods(PodState.DRAINING, 10)] == ["p1"]


async def test_weights_share_the_pods(index: RedisIndex) -> None:
    """A caller of weight 3 gets three pods for each one of a caller of weight 1 while both wait, spread evenly."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    for number in range(9):
        await index.claim(request(f"a{number}", weight=3))
    for number in range(3):
        await index.claim(request(f"b{number}", "b"))
    order = await served_in_order(index, "p1", 12)
    assert [name[0] for name in order] == list("abaaabaaabaa")
    assert [name for name in order if name[0] == "a"] == [f"a{number}" for number in range(9)]


async def test_the_heaviest_starves_nobody(index: RedisIndex) -> None:
    """Beside a caller of weight 1000 that never runs short, one of weight 1 has its pod in every turn, to the grant."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    crowd, batch = _crowd(index)
    for number in range(1_100):
        await crowd.claim(request(f"a{number}", weight=1000))
    await batch.send()
    for number in range(2):
        await index.claim(request(f"b{number}", "b"))
    order = await served_in_order(index, "p1", 1_010)
    assert [place for place, name in enumerate(order) if name[0] == "b"] == [1, 1_002]


@pytest.mark.parametrize("weight", [1, 2, 3, 7, 16, 333, 997, 999, 1000])
def test_every_turn_has_a_weights_grants(weight: int) -> None:
    """In each turn a caller has as many grants as it weighs, wherever it came in: nothing is lost by rounding, no grant
    is free, and none costs more than one of equal parts, rounded up."""
    turn = IndexLimits().turn
    for start in (0, 1, 499, turn - 1):
        time, grants = start, list[int]()
        while time < 3 * turn:
            time = after_grant(time, weight, turn)
            grants.append(time)
        ends = [len([one for one in grants if turn * number < one <= turn * (number + 1)]) for number in (1, 2)]
        steps = [after - before for before, after in pairwise([start, *grants])]
        assert ends == [weight, weight] and min(steps) >= 1 and max(steps) <= -(-turn // weight)


@pytest.mark.parametrize(("weight", "grants"), [(1, 5), (2, 9)])
async def test_a_share_is_as_large_as_the_weight(index: RedisIndex, weight: int, grants: int) -> None:
    """How often a caller is handed its own pod past the others goes by its weight, too."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "a0", weight=weight)
    await index.claim(request("b1", "b"))
    kinds: list[str] = []
    while "must_drain" not in kinds:
        number = len(kinds) + 1
        await index.claim(request(f"a{number}", weight=weight))
        await released(index, f"a{number - 1}")
        kinds.append((await recycle(index, "p1")).kind)
    assert kinds == ["handed_to"] * grants + ["must_drain"]


async def test_a_new_weight_holds_for_who_waits_already(index: RedisIndex) -> None:
    """A waiting request that asks again, as all do, is charged by the weight that it comes with."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    for number in range(4):
        await index.claim(request(f"a{number}"))
        await index.claim(request(f"b{number}", "b"))
    for number in range(4):
        await index.claim(request(f"b{number}", "b", weight=4))
    assert await served_in_order(index, "p1", 6) == ["a0", "b0", "b1", "b2", "b3", "a1"]


async def test_a_gang_is_charged_by_its_callers_weight(index: RedisIndex) -> None:
    """Every member of a gang costs its caller what a single request of it would."""
    await index.set_targets(2, 4, 0)
    await warm(index, "p1", "p2", "p3", "p4")
    for number in range(4):
        await claimed(index, f"z{number}", "z")
    await index.claim(request("b0", "b"))
    await ask_gang(index, gang_of("g", 4), weight=4)
    for number in range(1, 5):
        await index.pod_gone(PodName(f"p{number}"), "test")
    turn = IndexLimits().turn
    assert await index.redis.commands.get(f"{index.base}caller:a") == str(turn)
