"""What the client makes of a connection: each answer is its own call's and whole, and what is no answer is said to be
none, however it comes."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from fixtures.waiting import wait_until

from emberpool.pool.client import exchange
from emberpool.pool.client.signing import Keyed
from emberpool.pool.client.transport import RawAnswer, Transport
from emberpool.pool.emberd import signing
from emberpool.pool.model.errors import InvalidInput, PodUnreachable

Serve = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What the server does about a request, whose head is given."""
LARGE = 3 * 1024 * 1024


class Server:
    """On a unix socket; what it does about a request is the test's."""

    def __init__(self, path: Path) -> None:
        self.endpoint, self._path = f"unix:{path}", path
        self.connections = 0
        """Made so far."""
        self.open = 0
        self.heads: list[bytes] = []
        self.serve: Serve = answer_with(b"{}")

    async def start(self) -> asyncio.Server:
        """Listen."""
        return await asyncio.start_unix_server(self._connected, self._path)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            while not writer.is_closing():
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self.serve(self.heads[-1], reader, writer)
        writer.close()
        self.open -= 1


def whole(body: bytes, headers: bytes = b"") -> bytes:
    """An answer."""
    return b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%s" % (headers, len(body), body)


def answer_with(body: bytes, headers: bytes = b"") -> Serve:
    """Answer so at once."""

    async def serve(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(body, headers))

    return serve


def write_and_end(data: bytes) -> Serve:
    """Send these bytes and hang up."""

    async def serve(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    return serve


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """It answers with an empty object until it is told otherwise."""
    made = Server(tmp_path / "s")
    listening = await made.start()
    yield made
    listening.close()


@pytest.fixture
async def to(server: Server) -> AsyncIterator[Transport]:
    """Leaves no connection open."""
    transport = Transport()
    yield transport
    await transport.aclose()

    async def closed() -> bool:
        return server.open == 0

    await wait_until(closed, 10)


async def ask(
    to: Transport, server: Server, method: str = "POST", body: bytes = b"", timeout_s: float = 10.0
) -> RawAnswer:
    return await to.send("pod", server.endpoint, method, "/v1/x", {"x-ember-nonce": "n"}, body, timeout_s)


async def unreachable(to: Transport, server: Server, method: str = "POST", timeout_s: float = 10.0) -> PodUnreachable:
    """How a call fails."""
    with pytest.raises(PodUnreachable) as caught:
        await ask(to, server, method, timeout_s=timeout_s)
    return caught.value


async def test_an_answer_in_pieces_is_one_answer(to: Transport, server: Server) -> None:
    """Also if each byte of it comes alone, and the next call uses the same connection."""

    async def serve(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in whole(b"one by one", b"X-Ember-Mac: a\r\n"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    server.serve = serve
    for _ in range(3):
        answer = await ask(to, server)
        assert (answer.status, answer.body, answer.headers["x-ember-mac"]) == (200, b"one by one", "a")
    assert server.connections == 1


async def test_bodies_of_any_size_go_both_ways(to: Transport, server: Server) -> None:
    """A request of megabytes arrives as it is, and so does an answer."""
    sent = bytes(range(256)) * (LARGE // 256)

    async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int(head.partition(b"content-length: ")[2].split()[0])
        writer.write(whole(await reader.readexactly(size)))

    server.serve = echo
    for size in (0, 1, exchange.PIECE - 1, exchange.PIECE, LARGE):
        assert (await ask(to, server, "PUT", sent[:size])).body == sent[:size]
    assert server.connections == 1


async def test_a_refusal_comes_before_the_body_is_read(to: Transport, server: Server) -> None:
    """Who is refused hears it although nobody reads what he sends; the rest of that is nobody's next request."""
    server.serve = answer_with(b"no")
    assert (await ask(to, server, "PUT", bytes(LARGE))).body == b"no"
    assert (await ask(to, server)).body == b"no"
    assert server.connections == 2


async def test_a_late_answer_is_nobody_elses(to: Transport, server: Server) -> None:
    """A call that was given up, for its time limit or by its caller, takes its connection with it."""
    hold = asyncio.Event()

    async def late(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()
        writer.write(whole(b"late"))

    server.serve = late
    error = await unreachable(to, server, timeout_s=0.05)
    assert error.sent and "0.05 s" in str(error)
    given_up = asyncio.create_task(ask(to, server))

    async def asked() -> bool:
        return len(server.heads) == 2

    await wait_until(asked, 10)
    given_up.cancel()
    await asyncio.wait([given_up])
    assert given_up.cancelled()
    server.serve = answer_with(b"in time")
    hold.set()
    assert (await ask(to, server)).body == b"in time"
    assert server.connections == 3


@pytest.mark.parametrize(
    "said",
    [
        b"",
        whole(b"whole")[:-1],
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\n\r\nno length",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"220 mail.example ESMTP\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x50\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
    ],
    ids=["nothing", "cut", "cut head", "no length", "below nothing", "mail", "tls", "endless head"],
)
async def test_what_is_no_answer_is_told_at_once(to: Transport, server: Server, said: bytes) -> None:
    """The call may have been heard all the same, and nothing of it is kept for the next."""
    server.serve = write_and_end(said)
    assert (await unreachable(to, server)).sent
    server.serve = answer_with(b"{}")
    assert (await ask(to, server)).body == b"{}"


async def test_a_kept_connection_that_has_ended_is_made_anew(to: Transport, server: Server) -> None:
    """By whoever asks for what may be asked twice; a call that does something is never sent twice."""
    closing = {b"POST": 0, b"GET": 0}

    async def hang_up_once(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = head.split()[0]
        closing[method] += 1
        if closing[method] == 2:
            writer.close()
        else:
            writer.write(whole(b"{}"))

    server.serve = hang_up_once
    for _ in range(2):
        assert (await ask(to, server, "GET")).body == b"{}"
    assert closing[b"GET"] == 3 and server.connections == 2
    await ask(to, server)
    assert (await unreachable(to, server)).sent
    assert closing[b"POST"] == 2


async def test_connections_that_shall_not_be_kept_are_not(
    to: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that emberd is about to close, and one that nobody has used for long."""
    monkeypatch.setattr(exchange, "KEEP_ALIVE_S", 0.05)
    server.serve = answer_with(b"{}", b"Connection: close\r\n")
    for _ in range(2):
        await ask(to, server)
    assert server.connections == 2
    server.serve = answer_with(b"{}")
    await asyncio.gather(*(ask(to, server) for _ in range(3)))

    async def closed() -> bool:
        return server.open == 0

    await wait_until(closed, 10)
    await ask(to, server)
    assert server.connections == 6


async def test_nothing_was_sent_where_nobody_listens(to: Transport, server: Server, tmp_path: Path) -> None:
    """So that a new claim may move on to another pod."""
    server.endpoint = f"unix:{tmp_path}/nobody"
    assert not (await unreachable(to, server)).sent
    server.endpoint = "http://127.0.0.1:1"
    assert not (await unreachable(to, server)).sent
    server.endpoint = "http://:1"
    with pytest.raises(InvalidInput):
        await ask(to, server)


async def test_who_accepts_nobody_holds_up_nobody(
    to: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is not made in time was not made."""
    monkeypatch.setattr(exchange, "CONNECT_S", 0.1)
    server.endpoint = "http://192.0.2.1:9"  # an address of no host (RFC 5737)
    began = time.monotonic()
    assert not (await unreachable(to, server)).sent
    assert time.monotonic() - began < 5


async def test_no_value_begins_a_header(to: Transport, server: Server) -> None:
    """Nor a request: nothing is sent."""
    for value in ("a\r\nx-ember-lease: b", "a\n", "\u20ac"):
        with pytest.raises(InvalidInput):
            await to.send("pod", server.endpoint, "POST", "/", {"x-ember-tag": value}, b"", 1.0)
    assert server.heads == []


def test_signatures_are_hmac() -> None:
    """With keys of any length, as anybody's HMAC-SHA-256 makes them."""
    for size in (0, 1, 32, 63, 64, 65, 200):
        key = bytes(range(size))
        expected = hmac.new(key, b"one\ntw\xf6", hashlib.sha256).hexdigest()
        assert Keyed(key).mac(["one", "tw\u00f6"]) == signing.Keyed(key).mac(["one", "tw\u00f6"]) == expected
