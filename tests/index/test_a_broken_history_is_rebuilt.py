"""A Redis that lost something, however little, holds no index: the pods tell it anew, and nobody gets a pod twice."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from fixtures.pods import claimed, request, tag_of, warm
from fixtures.redis import assert_keys_end, build
from fixtures.servers import Group, Server, caught_up, cluster, cluster_url, group, in_memory
from fixtures.waiting import wait_until

from emberpool.pool.index.caller import Argument, ScriptCaller
from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.contract import RebuiltPod
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.rebuild import rebuild_index
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.index.scripts import Script
from emberpool.pool.model.claim import Claimed, ClaimReply, Lost, Rebuilding, Wait
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import BootId, PodName, PodUid
from emberpool.pool.model.state import PodState

TIMEOUT_S = 2.0


def held(name: str, lease: str, caller: str, epoch: int) -> RebuiltPod:
    """A pod whose emberd says that it is held."""
    where = {"uid": PodUid("u"), "boot_id": BootId("b"), "endpoint": f"unix:/{name}", "image": "base"}
    who = {"state": "held", "tag": tag_of(caller), "epoch": epoch, "lease": lease, "hold_s": 60}
    return RebuiltPod.model_validate({"name": name, **where, **who})


async def answered(index: RedisIndex, name: str, caller: str = "a") -> ClaimReply:
    """Claim until a server answers, as a caller does that waits for Redis."""
    replies: list[ClaimReply] = []

    async def asked() -> bool:
        replies.append(await index.claim(request(name, caller)))
        return True

    await wait_until(asked, 60)
    return replies[-1]


async def rebuilt(index: RedisIndex, *pods: RebuiltPod) -> None:
    """Rebuild from these accounts, with targets. Nothing of the lost index is left to live for ever."""
    assert await index.try_rebuild_lock("w", 30)
    assert await index.rebuild("w", list(pods))
    assert await index.set_targets(1, 8, 0)
    await assert_keys_end(index.redis, index)


async def before(running: Group, redis: IndexRedis) -> tuple[RedisIndex, Server, Server]:
    """An index with two warm pods on a group in which master and replica agree."""
    index = RedisIndex(redis, "tests", "pool")
    await build(index)
    await warm(index, "p1", "p2")
    master = await running.master()
    (replica,) = [server for server in running.servers if server is not master]
    await caught_up(master, replica)
    return index, master, replica


async def test_a_replica_that_lagged_gives_no_pod_away(tmp_path: Path) -> None:
    """The replica missed the last claims when it took over: Rebuilding, and the pods' holders keep them."""
    async with group(tmp_path) as running, await connect(running.url, timeout_s=TIMEOUT_S) as redis:
        index, master, replica = await before(running, redis)
        replica.signal(signal.SIGSTOP)
        await master.ask("CLIENT", "KILL", "TYPE", "replica")
        mine = await claimed(index, "r1")
        await master.kill()
        replica.signal(signal.SIGCONT)
        new = await running.failed_over(master)
        assert new is replica
        assert await new.ask("HGET", f"{index.base}pod:{mine.pod.name}", "state") == "idle", "it did not lag"
        assert await answered(index, "r2", "b") == Rebuilding()
        await rebuilt(index, held(mine.pod.name, "r1", "a", mine.epoch))
        again = await claimed(index, "r1", epoch=mine.epoch)
        assert (again.pod.name, again.new) == (mine.pod.name, False)
        other = await index.claim(request("r2", "b"))
        assert not isinstance(other, Claimed) or other.pod.name != mine.pod.name


async def test_a_rebuild_does_not_go_on_where_its_pages_are_missing(tmp_path: Path) -> None:
    """A replica takes over that has the rebuilder's lock but not its first page: the next rebuild has all pods."""
    async with group(tmp_path) as running, await connect(running.url, timeout_s=TIMEOUT_S) as redis:
        index, master, replica = await before(running, redis)
        await master.ask("DEL", f"{index.base}generation")
        pods = [held("p1", "r1", "a", 1001), held("p2", "r2", "b", 1000)]

        class FailsOver(ScriptCaller):
            """Has the replica miss the first page, and goes on with what then is the master."""

            pages = 0

            async def __call__(self, script: Script, *arguments: Argument) -> Sequence[str]:
                """Run it where the master is now."""
                self.pages += script is Script.REBUILD_PAGE
                if script is not Script.REBUILD_PAGE or self.pages > 2:
                    return await super().__call__(script, *arguments)
                if self.pages == 1:
                    await caught_up(master, replica)
                    replica.signal(signal.SIGSTOP)
                    await master.ask("CLIENT", "KILL", "TYPE", "replica")
                    return await super().__call__(script, *arguments)
                await master.kill()
                replica.signal(signal.SIGCONT)
                await running.failed_over(master)
                assert str(await replica.ask("GET", f"{index.base}rebuild_lock")).startswith("w/"), "the lock is there"
                replies: list[Sequence[str]] = []

                async def ran() -> bool:
                    replies.append(await super(FailsOver, self).__call__(script, *arguments))
                    return True

                await wait_until(ran, 30)
                return replies[-1]

        assert await index.try_rebuild_lock("w", 30)
        fails_over = FailsOver(redis, index.base, IndexLimits())
        assert not await rebuild_index(redis, fails_over, index.base, "w", pods, page=1)
        assert await index.claim(request("r3")) == Rebuilding()
        assert await index.keep_rebuild_lock("w", 0)
        await wait_until(lambda: index.try_rebuild_lock("again", 30), 5)
        assert await index.rebuild("again", pods)
        assert [pod.name for pod in await index.pods(PodState.LEASED, 10)] == ["p1", "p2"]


async def test_an_empty_replica_starts_no_pods(tmp_path: Path) -> None:
    """A master with nothing in it: nothing is created before the index is rebuilt and its targets are known."""
    async with group(tmp_path) as running, await connect(running.url, timeout_s=TIMEOUT_S) as redis:
        index, master, replica = await before(running, redis)
        await master.kill()
        new = await running.failed_over(master)
        assert new is replica
        await new.ask("FLUSHALL")
        assert await answered(index, "r1") == Rebuilding()
        assert [await index.claim(request(f"r{number}")) for number in range(20)] == [Rebuilding()] * 20
        assert await index.try_rebuild_lock("w", 30)
        assert await index.rebuild("w", [])
        assert isinstance(await index.claim(request("r1")), Wait)


async def test_scripts_survive_a_planned_failover(tmp_path: Path) -> None:
    """Sentinel moves the master while claims go on: none is lost, each pod has one holder (CSenshi/nestjs-redis#15)."""
    async with group(tmp_path) as running, await connect(running.url, timeout_s=TIMEOUT_S) as redis:
        index, master, _ = await before(running, redis)
        blocked = asyncio.create_task(index.next_wakes("w", 30))
        mine = await claimed(index, "r1")
        await running.sentinels[0].ask("SENTINEL", "FAILOVER", "pool")
        await running.failed_over(master)
        with pytest.raises(PoolUnavailable):
            await blocked
        assert await answered(index, "r2", "b") == Rebuilding()
        await rebuilt(index, held(mine.pod.name, "r1", "a", mine.epoch))
        assert (await claimed(index, "r1", epoch=mine.epoch)).pod.name == mine.pod.name


async def test_a_restart_with_data_is_rebuilt_from_the_pods(tmp_path: Path) -> None:
    """A server that starts again with its files may lack the last seconds: its index counts for nothing."""
    async with Server(tmp_path, "appendonly yes", "appendfsync everysec", 'save ""') as server:
        async with await connect(server.url, timeout_s=TIMEOUT_S) as redis:
            index = RedisIndex(redis, "tests", "pool")
            await build(index)
            await warm(index, "p1")
            mine = await claimed(index, "r1")
            await server.kill()
            with pytest.raises(PoolUnavailable):
                await index.counts()
            await server.start()
            assert await server.ask("EXISTS", f"{index.base}generation") == 1
            assert await answered(index, "r2", "b") == Rebuilding()
            await rebuilt(index, held("p1", "r1", "a", mine.epoch))
            assert (await claimed(index, "r1", epoch=mine.epoch)).pod.name == "p1"


async def test_a_restart_without_data_is_rebuilt(tmp_path: Path) -> None:
    """A server that kept nothing answers Rebuilding; who held a pod that is gone has lost it, not got another."""
    async with Server(tmp_path, *in_memory()) as server:
        async with await connect(server.url, timeout_s=TIMEOUT_S) as redis:
            index = RedisIndex(redis, "tests", "pool")
            await build(index)
            await warm(index, "p1")
            mine = await claimed(index, "r1")
            await server.kill()
            await server.start()
            assert await answered(index, "r1") == Rebuilding()
            await rebuilt(index)
            assert await index.claim(request("r1", epoch=mine.epoch)) == Lost(reason="unknown")


async def test_a_first_replica_is_no_loss(tmp_path: Path) -> None:
    """A server that gets its first replica changes its replication id and has lost nothing: the index stands."""
    async with Server(tmp_path / "a", *in_memory()) as server, await connect(server.url) as redis:
        index = RedisIndex(redis, "tests", "pool")
        await build(index)
        await warm(index, "p1")
        mine = await claimed(index, "r1")
        before_id = _id(await server.ask("INFO", "replication"))
        lines = (*in_memory(), f"replicaof 127.0.0.1 {server.port}")
        async with Server(tmp_path / "b", *lines) as replica, await connect(replica.url) as astray:
            await caught_up(server, replica)
            assert _id(await server.ask("INFO", "replication")) != before_id
            assert (await claimed(index, "r1", epoch=mine.epoch)).pod.name == mine.pod.name
            with pytest.raises(PoolUnavailable, match="masters only"):
                await RedisIndex(astray, "tests", "pool").counts()


async def test_a_slot_that_moved_is_rebuilt(tmp_path: Path) -> None:
    """While a pool's slot moves between nodes of a Cluster key by key, calls fail as PoolUnavailable at worst; where it
    has arrived the index is rebuilt, since a script may have been cut short in between."""
    async with cluster(tmp_path) as nodes, await connect(cluster_url(nodes), timeout_s=TIMEOUT_S) as redis:
        index = RedisIndex(redis, "tests", "pool")
        await build(index)
        await warm(index, "p1", "p2")
        mine = await claimed(index, "r1")
        slot = int(await nodes[0].ask("CLUSTER", "KEYSLOT", f"{index.base}generation"))
        (source,) = [node for node in nodes if await node.ask("CLUSTER", "COUNTKEYSINSLOT", slot)]
        target = next(node for node in nodes if node is not source)
        ids = {node: await node.ask("CLUSTER", "MYID") for node in (source, target)}
        await target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        await source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        await source.ask("MIGRATE", "127.0.0.1", target.port, f"{index.base}pod:{mine.pod.name}", 0, 5000)
        with pytest.raises(PoolUnavailable):
            await index.claim(request("r1", epoch=mine.epoch))
        for key in await source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000):
            await source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        for node in nodes:
            await node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        assert await answered(index, "r2", "b") == Rebuilding()
        await rebuilt(index, held(mine.pod.name, "r1", "a", mine.epoch))
        assert (await claimed(index, "r1", epoch=mine.epoch)).pod.name == mine.pod.name


def _id(info: object) -> str:
    text = str(info)
    return text.split("master_replid")[1][:50]


async def test_a_server_that_pauses_has_lost_nothing(tmp_path: Path) -> None:
    """After a pause the index stands, and a claim whose answer came too late is answered the same again."""
    async with Server(tmp_path, *in_memory()) as server, await connect(server.url, timeout_s=0.5) as redis:
        index = RedisIndex(redis, "tests", "pool")
        await build(index)
        await warm(index, "p1")
        server.signal(signal.SIGSTOP)
        with pytest.raises(PoolUnavailable):
            await index.claim(request("r1"))
        server.signal(signal.SIGCONT)
        assert (await claimed(index, "r1")).pod.name == PodName("p1")
