"""The one module that makes Redis clients: bounded pools, time-outs, the eviction policy's check, one event loop."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TimeoutError,
)

from emberpool.pool.model.errors import InvalidInput, PoolUnavailable

log = logging.getLogger(__name__)

BLOCK_S = 20.0
"""Longest single blocking read; longer waits repeat it, so that a dead connection is noticed."""

_TROUBLE = (
    ConnectionError,
    TimeoutError,
    BusyLoadingError,
    ClusterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    OSError,
    asyncio.TimeoutError,
)


class IndexRedis:
    """Redis as the index uses it: `commands` for transitions, `blocking` for reads that wait. One event loop's own.

    A burst waits for a free connection, a bounded time (redis/redis-py#2517). A call that is cancelled drops its
    connection rather than leave a reply in it (redis/redis-py#2624).
    """

    def __init__(self, url: str, max_connections: int = 16, timeout_s: float = 5.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._commands = _client(url, max_connections, timeout_s, timeout_s)
        self._blocking = _client(url, 64, timeout_s, BLOCK_S + timeout_s)

    @property
    def commands(self) -> "Redis":
        """For commands that answer at once."""
        self._check_owner()
        return self._commands

    @property
    def blocking(self) -> "Redis":
        """For commands that wait, up to BLOCK_S."""
        self._check_owner()
        return self._blocking

    def _check_owner(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this Redis client belongs to the process that forked: make one per process")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this Redis client belongs to another event loop: make one per loop")

    async def check_policy(self) -> None:
        """Refuse a server that may evict the index.

        Raises:
            InvalidInput: maxmemory-policy is not noeviction.
            PoolUnavailable: the server cannot be reached.
        """
        try:
            async with trouble_named():
                info = await self.commands.info("memory")  # pyright: ignore[reportUnknownMemberType]
        except NoPermissionError:
            log.warning("Redis does not let us read its maxmemory-policy; make sure that it is noeviction")
            return
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            raise InvalidInput(
                "redis", f"maxmemory-policy is {policy!r}, so Redis may drop leases: set it to 'noeviction'"
            )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._commands.aclose()
        await self._blocking.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def connect(url: str, max_connections: int = 16, timeout_s: float = 5.0) -> IndexRedis:
    """Connect to `redis://`, `rediss://` or `unix://` and check that the server is fit to hold an index.

    `timeout_s` bounds the wait for a free connection, connecting, and each command, separately.

    Raises:
        InvalidInput: the URL is none, or the server's eviction policy is not noeviction.
        PoolUnavailable: the server cannot be reached.
    """
    try:
        redis = IndexRedis(url, max_connections, timeout_s)
    except ValueError as error:
        raise InvalidInput("redis_url", str(error)) from error
    try:
        await redis.check_policy()
    except BaseException:
        await redis.aclose()
        raise
    return redis


def _client(url: str, max_connections: int, timeout_s: float, socket_timeout_s: float) -> "Redis":
    pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        socket_timeout=socket_timeout_s,
        socket_connect_timeout=timeout_s,
        decode_responses=True,
        protocol=2,
        # Once more on a broken connection, since every transition may be repeated; never after a time-out.
        retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
    )
    return Redis.from_pool(pool)


@asynccontextmanager
async def trouble_named() -> AsyncGenerator[None]:
    """Turn what the connection or an unfit server raises into PoolUnavailable; faults of our own pass."""
    try:
        yield
    except _TROUBLE as error:
        raise PoolUnavailable(f"Redis: {type(error).__name__}: {error}") from error
