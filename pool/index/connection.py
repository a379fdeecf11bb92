"""How the rest reaches Redis: time-outs, the check of the servers, one event loop, trouble by its name."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, cast

from redis.asyncio import RedisCluster
from redis.exceptions import (
    AuthenticationError,
    ClusterError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,
)

from emberpool.pool.index.address import parse_address
from emberpool.pool.index.batches import Batches, Words
from emberpool.pool.index.clients import Bounds, RedisClient
from emberpool.pool.index.fitness import check_server
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger(__name__)

BLOCK_S = 20.0
"""Longest single blocking read; longer waits repeat it, so that a dead connection is noticed."""
BLOCKING_CONNECTIONS = 64
SCAN_PAGE = 500
"""Keys looked at by one step of a scan."""

_TROUBLE = (
    ConnectionError,
    TimeoutError,
    ClusterError,
    RedisClusterException,
    OutOfMemoryError,
    ReadOnlyError,
    OSError,
    asyncio.TimeoutError,
)

_TRANSIENT = re.compile(
    r"(?:^|-)(?:READONLY|MASTERDOWN|NOREPLICAS|MISCONF|OOM|LOADING|BUSY|UNBLOCKED|CLUSTERDOWN|TRYAGAIN)\b|non local key"
)
"""What a server answers that is fit for the index in general but not now: it became a replica, lacks replicas or disk,
or its slot is on the move. Before Redis 7 a script's error holds the code somewhere in its text."""


class IndexRedis:
    """Redis as the index uses it: `commands` for transitions, `blocking` for reads that wait. One event loop's own.

    A burst waits for a free connection, a bounded time (redis/redis-py#2517). A call that is cancelled drops its
    connection rather than leave a reply in it (redis/redis-py#2624).
    """

    def __init__(self, url: str, max_connections: int = 16, timeout_s: float = 5.0) -> None:
        """
        Raises:
            ValueError: the URL is none.
        """
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        address = parse_address(url)
        self._commands = RedisClient(address, Bounds(max_connections, timeout_s, timeout_s))
        self._blocking = RedisClient(address, Bounds(BLOCKING_CONNECTIONS, timeout_s, BLOCK_S + timeout_s))
        self._batches = Batches(self._run_all)

    @property
    def commands(self) -> "Redis":
        """For commands that answer at once."""
        self._check_owner()
        return self._commands.commands

    @property
    def blocking(self) -> "Redis":
        """For commands that wait, up to BLOCK_S."""
        self._check_owner()
        return self._blocking.commands

    async def run_script(self, sha: str, key: str, arguments: Sequence[str]) -> Any:
        """Run a script that the server knows by its hash, together with others that are run at the same moment.

        Raises:
            redis.exceptions.RedisError: what the server or the connection said; NoScriptError if it is not known.
        """
        self._check_owner()
        if self._commands.cluster is not None:
            # redis-py's pipelines on a Cluster have no bounds of ours, and follow redirections in ways of their own.
            return await cast(Any, self.commands.evalsha(sha, 1, key, *arguments))
        return await self._batches.call(sha, key, *arguments)

    async def _run_all(self, calls: Sequence[Words]) -> list[Any]:
        if len(calls) == 1:
            ((sha, *words),) = calls
            return [await cast(Any, self.commands.evalsha(sha, 1, *words))]
        trip = self.commands.pipeline(transaction=False)
        for sha, *words in calls:
            trip.evalsha(sha, 1, *words)
        return await trip.execute(raise_on_error=False)

    def _check_owner(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this Redis client belongs to the process that forked: make one per process")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this Redis client belongs to another event loop: make one per loop")

    async def check_servers(self) -> None:
        """Refuse servers that are not fit to hold the index (pool/index/fitness.py).

        Raises:
            InvalidInput: one of the primaries is not fit, or refuses our login.
            PoolUnavailable: the server cannot be reached.
        """
        try:
            async with trouble_named():
                told = await self._info()
        except NoPermissionError:
            log.warning("Redis does not let us read its version and maxmemory-policy; make sure that it is noeviction")
            return
        for info in told:
            check_server(info)

    async def _info(self) -> list[dict[str, Any]]:
        """INFO of every server that may hold keys of the index."""
        target = {"target_nodes": RedisCluster.PRIMARIES} if self._commands.cluster else {}
        told = cast(Any, await self.commands.info(**target))  # pyright: ignore[reportUnknownMemberType]
        # A Cluster with one primary answers as a server does.
        if "redis_version" in told or not target:
            return [told]
        return list(told.values())

    async def keys(self, base: str) -> AsyncIterator[list[str]]:
        """All keys that begin with `base`, which ends a pool's hash tag, in pages; the last one may be empty.

        Raises:
            PoolUnavailable: the server cannot be reached.
        """
        cursor: Any = 0
        while True:
            async with trouble_named():
                cursor, found = await self._scan(base, cursor)
            yield found
            if cursor == 0:
                return

    async def _scan(self, base: str, cursor: int) -> tuple[int, list[str]]:
        target: dict[str, Any] = {}
        if self._commands.cluster is not None:
            # One hash tag, one slot, one node: the others hold nothing of this pool.
            await self._commands.cluster.initialize()
            target = {"target_nodes": self._commands.cluster.get_node_from_key(f"{base}generation")}
        reply = cast(
            Any,
            await self.commands.scan(  # pyright: ignore[reportUnknownMemberType]
                cursor, match=f"{base}*", count=SCAN_PAGE, **target
            ),
        )
        after, found = reply
        if isinstance(after, dict):
            (after,) = cast("dict[str, Any]", after).values()
        return int(after), [str(key) for key in found]

    async def aclose(self) -> None:
        """Close every connection, also if who closes is cancelled meanwhile.

        Calls that are under way end as such that met trouble, and so do later ones.
        """
        try:
            await self._close()
        except asyncio.CancelledError:
            # As by the end of the event loop, which cancels every task once and waits for it.
            await self._close()
            raise

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._blocking.aclose)
            stack.push_async_callback(self._commands.aclose)
            await self._batches.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def connect(url: str, max_connections: int = 16, timeout_s: float = 5.0) -> IndexRedis:
    """Connect by any URL of `pool.index.address` and check that the server is fit to hold an index.

    `timeout_s` bounds the wait for a free connection, connecting, and each command, separately.

    Raises:
        InvalidInput: the URL is none, the login is refused, or the server is too old or may evict the index.
        PoolUnavailable: the server cannot be reached.
    """
    try:
        redis = IndexRedis(url, max_connections, timeout_s)
    except ValueError as error:
        raise InvalidInput("redis_url", str(error)) from error
    try:
        await redis.check_servers()
    except PoolUnavailable as error:
        await redis.aclose()
        if isinstance(error.__cause__, AuthenticationError):
            raise InvalidInput("redis_url", f"the server refuses the login: {error.__cause__}") from error
        raise
    except BaseException:
        await redis.aclose()
        raise
    return redis


@asynccontextmanager
async def trouble_named() -> AsyncGenerator[None]:
    """Turn what the connection or an unfit server raises into PoolUnavailable; faults of our own pass."""
    try:
        yield
    except _TROUBLE as error:
        raise PoolUnavailable(f"Redis: {type(error).__name__}: {error}") from error
    except ResponseError as error:
        if not _TRANSIENT.search(str(error)):
            raise
        raise PoolUnavailable(f"Redis: {error}") from error
