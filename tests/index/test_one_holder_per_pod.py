"""However many ask at once, a pod has one holder and the ceiling holds."""

import asyncio

from fixtures.pods import recycle, released, request, warm

from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Provision, Wait
from emberpool.pool.model.state import PodState


async def test_two_hundred_claimers_for_a_hundred_pods(index: RedisIndex) -> None:
    """Round after round, each pod goes to one claimer and the others wait (kubernetes-sigs/agent-sandbox#431)."""
    await index.set_targets(2, 100, 0)
    await warm(index, *(f"p{number}" for number in range(100)))
    for turn in range(3):
        names = [f"r{turn}-{number}" for number in range(200)]
        replies = await asyncio.gather(*(index.claim(request(name)) for name in names))
        held = [name for name, reply in zip(names, replies, strict=True) if isinstance(reply, Claimed)]
        pods = [reply.pod.name for reply in replies if isinstance(reply, Claimed)]
        assert len(pods) == len(set(pods)) == 100
        assert sum(isinstance(reply, Wait) for reply in replies) == 100
        for name in set(names) - set(held):
            await index.release(request(name).request_id)
        for name in held:
            pod = (await released(index, name)).pod
            await recycle(index, pod)


async def test_two_calls_of_one_request_share_its_pod(index: RedisIndex) -> None:
    """First calls that race are answered with the same pod, as new to one of them only."""
    await warm(index, "p1", "p2", "p3")
    replies = await asyncio.gather(*(index.claim(request("r1")) for _ in range(10)))
    claims = [reply for reply in replies if isinstance(reply, Claimed)]
    assert len(claims) == 10
    assert {claim.pod.name for claim in claims} == {claims[0].pod.name}
    assert [claim.new for claim in claims].count(True) == 1


async def test_the_ceiling_holds_in_a_burst(index: RedisIndex) -> None:
    """A burst of claims on an empty pool takes as many places as there are, and no more."""
    replies = await asyncio.gather(*(index.claim(request(f"r{n}", f"c{n % 7}")) for n in range(100)))
    assert sum(isinstance(reply, Provision) for reply in replies) == 8
    counts = await index.counts()
    assert (counts.by_state[PodState.STARTING], counts.waiting) == (8, 92)


async def test_a_burst_on_few_connections(index: RedisIndex, redis_url: str) -> None:
    """Five hundred claims over ten connections wait for one another; none fails (redis/redis-py#2517)."""
    async with await connect(redis_url, max_connections=10) as redis:
        narrow = RedisIndex(redis, "tests", index.name)
        await narrow.set_targets(2, 500, 0)
        replies = await asyncio.gather(*(narrow.claim(request(f"r{n}")) for n in range(500)))
        assert all(isinstance(reply, Provision) for reply in replies)
