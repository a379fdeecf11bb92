"""Runs the index's scripts over a bare connection, so that a measurement shows the scripts, not a client library.

What RedisIndex does before and after is left as it is; only the bytes in between go without redis-py.
"""

import asyncio
from collections.abc import Sequence
from urllib.parse import parse_qs, unquote, urlsplit

from emberpool.pool.index.caller import Argument, ScriptCaller
from emberpool.pool.index.connection import IndexRedis
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.index.scripts import Script

Reply = str | list["Reply"]


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._heard = b""
        self._reply: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer who asked, once the reply is whole."""
        self._heard += data
        try:
            reply, end = _parse(self._heard, 0)
        except (IndexError, ValueError):
            return  # not whole yet
        self._heard = self._heard[end:]
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    async def ask(self, words: Sequence[str]) -> Reply:
        """Send a command and wait for its reply.

        Raises:
            RuntimeError: the server answered with an error.
        """
        assert self._transport is not None
        self._reply = asyncio.get_running_loop().create_future()
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            data = word.encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        self._transport.write(b"".join(parts))
        reply = await self._reply
        if isinstance(reply, str) and reply.startswith("-"):
            raise RuntimeError(reply)
        return reply

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def _parse(heard: bytes, at: int) -> tuple[Reply, int]:
    end = heard.index(b"\r\n", at)
    kind, number = heard[at : at + 1], heard[at + 1 : end]
    at = end + 2
    if kind == b"$":
        length = int(number)
        if length < 0:
            return "", at
        if len(heard) < at + length + 2:
            raise ValueError("not whole")
        return heard[at : at + length].decode(), at + length + 2
    if kind == b"*":
        items: list[Reply] = []
        for _ in range(int(number)):
            item, at = _parse(heard, at)
            items.append(item)
        return items, at
    return ("-" if kind == b"-" else "") + number.decode(), at


async def open_connection(url: str) -> Connection:
    """Connect to `unix://:password@/path`.

    Raises:
        ValueError: the URL is of another kind.
    """
    parts = urlsplit(url)
    if parts.scheme != "unix":
        raise ValueError("the measurement's server listens on a unix socket")
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(Connection, unquote(parts.path))
    if parts.password:
        await connection.ask(["AUTH", unquote(parts.password)])
    database = parse_qs(parts.query).get("db", ["0"])[0]
    await connection.ask(["SELECT", database])
    return connection


class LeanCaller(ScriptCaller):
    """Runs scripts over one bare connection."""

    def __init__(self, redis: IndexRedis, base: str, connection: Connection) -> None:
        super().__init__(redis, base, IndexLimits())
        self._connection = connection

    async def __call__(self, script: Script, *arguments: Argument) -> Sequence[str]:
        """Run a script that the server knows."""
        words = ["EVALSHA", self._hashes[script], "1", self._generation_key, *map(str, arguments)]
        reply = await self._connection.ask(words)
        assert isinstance(reply, list)
        return reply  # type: ignore[return-value]

    async def load(self) -> None:
        """Give the server every script."""
        for text in self._texts.values():
            await self._connection.ask(["SCRIPT", "LOAD", text])


class LeanIndex(RedisIndex):
    """A pool's index over a bare connection of its own."""

    def __init__(self, redis: IndexRedis, pool: str, connection: Connection) -> None:
        super().__init__(redis, "bench", pool)
        self.lean = LeanCaller(redis, self.base, connection)
        self._run = self.lean
        self.connection = connection
