"""Where a cancellation reaches redis-py itself, no other call gets the reply of the one that was cancelled.

Seen in redis/redis-py#2624: a cancel after the request and before the reply left the reply in the socket, and each
later call on that connection got the one before. Calls that travel together are shielded; those here are not.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from fixtures.pods import warm
from fixtures.redis import build
from fixtures.servers import SLOTS, Server, in_memory
from fixtures.slow_proxy import SlowProxy, slow_port, slow_proxy
from fixtures.waiting import wait_until
from redis.asyncio import Redis

from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.ids import PodName

NAMES = [f"p{number}" for number in range(8)]
ROUNDS = 50
Ask = Callable[[str], Awaitable[None]]
"""Ask for what belongs to a name, and see that it does."""


async def cancelled_at_any_moment(proxy: SlowProxy, ask: Ask) -> None:
    """Half of the calls are cancelled while replies are on their way, some twice; the others must get their own."""
    dice = random.Random(7)
    proxy.delay_s = 0.002
    cut = 0
    for _ in range(ROUNDS):
        asks = [asyncio.ensure_future(ask(name)) for name in NAMES * 2]
        for task in asks[::2]:
            await asyncio.sleep(dice.uniform(0, 0.002))
            task.cancel()
            if dice.random() < 0.3:
                await asyncio.sleep(0)
                task.cancel()
        for done in await asyncio.gather(*asks, return_exceptions=True):
            assert done is None or isinstance(done, asyncio.CancelledError), done
            cut += done is not None
    assert cut > ROUNDS, "hardly any call was cancelled on its way"
    proxy.delay_s = 0
    await asyncio.gather(*(ask(name) for name in NAMES * 2))


@asynccontextmanager
async def node_behind_a_proxy(folder: Path) -> AsyncGenerator[tuple[SlowProxy, str]]:
    """A Cluster of one node, which names the proxy's port as its own."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Server(folder, *in_memory(), "cluster-enabled yes", "cluster-port 0"))
        proxy, port = await stack.enter_async_context(slow_port(node.port))
        await node.ask("CONFIG", "SET", "cluster-announce-port", port)
        await node.ask("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)

        async def serves() -> bool:
            return "cluster_state:ok" in str(await node.ask("CLUSTER", "INFO")).replace("'", "").replace(": ", ":")

        await wait_until(serves)
        yield proxy, f"redis-cluster://127.0.0.1:{port}"


async def test_scripts_on_a_cluster(tmp_path: Path) -> None:
    """Each script's reply is about the pod that was asked for."""
    async with node_behind_a_proxy(tmp_path) as (proxy, url), await connect(url, max_connections=4) as redis:
        index = RedisIndex(redis, "tests", "pool")
        await build(index)
        await warm(index, *NAMES)

        async def ask(name: str) -> None:
            record = await index.pod(PodName(name))
            assert record is not None and record.name == name

        await cancelled_at_any_moment(proxy, ask)


@pytest.mark.parametrize("kind", ["plain", "blocking"])
async def test_commands_by_themselves(kind: str, redis_url: str, tmp_path: Path) -> None:
    """Each reply is of its key, for a plain command as for one that blocks."""
    async with slow_proxy(redis_url, tmp_path) as (proxy, url), await connect(url, max_connections=4) as redis:
        async with Redis.from_url(redis_url, decode_responses=True) as direct:  # pyright: ignore[reportUnknownMemberType]
            for name in NAMES:
                await direct.hset(f"crossed:{name}", "name", name)
                await direct.rpush(f"crossed:list:{name}", *[name] * ROUNDS * 4)

            async def plain(name: str) -> None:
                assert await redis.commands.hgetall(f"crossed:{name}") == {"name": name}

            async def blocking(name: str) -> None:
                key = f"crossed:list:{name}"
                assert await redis.blocking.blpop([key], timeout=5) in ([key, name], (key, name))

            await cancelled_at_any_moment(proxy, plain if kind == "plain" else blocking)
            await direct.delete(*(f"crossed:{part}{name}" for name in NAMES for part in ("", "list:")))
