"""redis-py's clients as the index uses them, for each kind of address: bounded, never waiting for ever, one retry.

Where redis-py's own bounds differ between a server, Sentinel and Cluster, they are made equal here.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError

from emberpool.pool.index.address import CLUSTER, SENTINEL, SERVER, RedisAddress
from emberpool.pool.index.under_way import UnderWay

CLUSTER_TRIES = 2
"""Further tries of a command on a Cluster, each after its nodes were asked anew who serves the slot."""


@dataclass(frozen=True)
class Bounds:
    """What one client may take."""

    connections: int
    """To each server."""
    wait_s: float
    """For a free connection, and for connecting."""
    reply_s: float
    """For a reply."""


class EndingRedis(Redis):
    """A client whose commands end with it. Pipelines have an owner of their own, which ends them (batches.py)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._under_way = UnderWay()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command.

        Raises:
            redis.exceptions.ConnectionError: the command failed, or the client was closed.
        """
        with self._under_way.command():
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """End what is under way, and close every connection."""
        try:
            await self._under_way.aclose()
        finally:
            await super().aclose(close_connection_pool)


class BoundedCluster(RedisCluster):
    """A Cluster's client that waits for a free connection, a bounded time, as BlockingConnectionPool does.

    redis-py's own fails at once with MaxConnectionsError when a node's connections are all in use.
    """

    def __init__(self, bounds: Bounds, **options: Any) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            max_connections=bounds.connections, **options
        )
        self._free = asyncio.Semaphore(bounds.connections)
        self._wait_s = bounds.wait_s
        self._under_way = UnderWay()

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Run one command.

        Raises:
            redis.exceptions.ConnectionError: no connection became free in time, the command failed, or the client was
                closed.
        """
        with self._under_way.command():
            async with self._turn():
                return await super().execute_command(*args, **kwargs)

    async def initialize(self, *args: Any, **kwargs: Any) -> "BoundedCluster":
        """Ask the nodes who serves what, if that is not known.

        Raises:
            redis.exceptions.RedisError: none of them answered, or the client was closed.
        """
        with self._under_way.command():
            await super().initialize(*args, **kwargs)
        return self

    async def aclose(self) -> None:
        """End what is under way, and close every connection."""
        try:
            await self._under_way.aclose()
        finally:
            await super().aclose()

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise ConnectionError("No connection available.") from None
        try:
            yield
        finally:
            self._free.release()


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Follows the master that the Sentinels name, and waits for a free connection."""


class RedisClient:
    """One client and what it needs to be closed. `commands` has redis-py's commands, whatever the address."""

    def __init__(self, address: RedisAddress, bounds: Bounds) -> None:
        """
        Raises:
            ValueError: the URL of a server cannot be read.
        """
        self._sentinel: Sentinel | None = None
        self.cluster: BoundedCluster | None = None
        if address.scheme in SERVER:
            self.commands = _server(address, bounds)
        elif address.scheme == SENTINEL:
            self._sentinel = _sentinel(address, bounds)
            self.commands = _master(self._sentinel, address, bounds)
        else:
            assert address.scheme == CLUSTER
            self.cluster = _cluster(address, bounds)
            # The commands that take keys are the same; those that do not are asked node by node, by who uses them.
            self.commands = cast("Redis", self.cluster)

    async def aclose(self) -> None:
        """Close every connection."""
        await self.commands.aclose()
        for sentinel in self._sentinel.sentinels if self._sentinel else ():
            await sentinel.aclose()


def _common(bounds: Bounds) -> dict[str, Any]:
    return {
        "socket_timeout": bounds.reply_s,
        "socket_connect_timeout": bounds.wait_s,
        "decode_responses": True,
        "protocol": 2,
    }


def _once_more() -> Retry:
    # On a broken connection, since every transition may be repeated; never after a time-out.
    return Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))


def _server(address: RedisAddress, bounds: Bounds) -> "Redis":
    pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
        address.url,
        max_connections=bounds.connections,
        timeout=bounds.wait_s,
        retry=_once_more(),
        **_common(bounds),
    )
    return EndingRedis.from_pool(pool)


def _tls(address: RedisAddress) -> dict[str, Any]:
    return {"ssl": True, **address.tls_files()} if address.tls else {}


def _sentinel(address: RedisAddress, bounds: Bounds) -> Sentinel:
    own: dict[str, Any] = {
        **_common(bounds),
        **_tls(address),
        # A Sentinel that hangs must not use up the time that the next one needs.
        "socket_timeout": bounds.wait_s / 2,
        "socket_connect_timeout": bounds.wait_s / 2,
        "username": address.options.get("sentinel_username"),
        "password": address.options.get("sentinel_password"),
        "retry": Retry(NoBackoff(), 0),
    }
    return Sentinel(list(address.nodes), sentinel_kwargs=own)  # type: ignore[no-untyped-call]


def _master(sentinel: Sentinel, address: RedisAddress, bounds: Bounds) -> "Redis":
    pool = _SentinelPool(  # type: ignore[no-untyped-call]
        address.service,
        sentinel,
        max_connections=bounds.connections,
        timeout=bounds.wait_s,
        retry=_once_more(),
        db=address.db,
        username=address.username,
        password=address.password,
        **_common(bounds),
        **_tls(address),
    )
    return EndingRedis.from_pool(pool)


def _cluster(address: RedisAddress, bounds: Bounds) -> BoundedCluster:
    return BoundedCluster(
        bounds,
        startup_nodes=[ClusterNode(host, port) for host, port in address.nodes],
        retry=Retry(NoBackoff(), CLUSTER_TRIES, supported_errors=(ConnectionError,)),
        username=address.username,
        password=address.password,
        **_common(bounds),
        **_tls(address),
    )
