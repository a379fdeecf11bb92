"""A connection that breaks: nothing is sent again that may have been done, nor called unsent that was sent."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from emberpool.pool.client.exchange import Address, Broken, Exchange, NotConnected, head_of
from emberpool.pool.client.transport import Transport
from emberpool.pool.model.errors import PodUnreachable

HEAD = head_of("PUT", "/", {}, 0)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Door:
    """A server on a unix socket that answers its first request, and all others as `then` says."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.server: asyncio.Server
        self.connections = self.asked = 0
        self.then: Callable[[asyncio.StreamWriter], Awaitable[None]] = self._cut

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                await reader.readuntil(b"\r\n\r\n")
                self.asked += 1
                if self.asked == 1:
                    writer.write(ANSWER)
                else:
                    await self.then(writer)
        writer.close()
        self.connections -= 1

    async def _cut(self, writer: asyncio.StreamWriter) -> None:
        writer.close()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncGenerator[Door]:
    """An open one."""
    one = Door(f"{tmp_path}/door")
    one.server = await asyncio.start_unix_server(one.serve, one.path)
    yield one
    one.server.close()


@pytest.fixture
async def exchange(door: Door) -> AsyncIterator[Exchange]:
    """The connections to it, one of them kept."""
    one = Exchange(Address(path=door.path))
    assert (await one.ask(HEAD, b"", 10.0, again=True)).status == 200
    yield one
    one.close()


async def test_an_answer_that_began_is_not_asked_for_again(door: Door, exchange: Exchange) -> None:
    """Not with its whole head and nothing else either: what was asked was done."""

    async def head_only(writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER[:-2])
        await writer.drain()
        writer.close()

    door.then = head_only
    with pytest.raises(Broken):
        await exchange.ask(HEAD, b"", 10.0, again=True)
    assert door.asked == 2


async def test_what_went_into_a_connection_that_broke_was_sent(door: Door) -> None:
    """Also if there was no other connection to send it again."""

    async def leave(writer: asyncio.StreamWriter) -> None:
        door.server.close()
        writer.close()

    door.then = leave
    to = Transport()

    async def put() -> int:
        return (await to.send("pod", f"unix:{door.path}", "PUT", "/", {}, b"", 10.0)).status

    assert await put() == 200
    with pytest.raises(PodUnreachable) as failure:
        await put()
    assert failure.value.sent
    with pytest.raises(PodUnreachable) as failure:
        await put()
    assert not failure.value.sent
    await to.aclose()


async def test_no_connection_outlives_the_close(door: Door) -> None:
    """Not one that was just being made either; nothing is sent on it."""
    exchange = Exchange(Address(path=door.path))
    asking = asyncio.create_task(exchange.ask(HEAD, b"", 10.0, again=True))
    await asyncio.sleep(0)  # it connects
    exchange.close()
    with pytest.raises(NotConnected):
        await asking
    assert door.asked == 0
