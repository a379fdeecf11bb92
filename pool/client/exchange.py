"""Requests and answers of known length over kept-alive connections to one emberd, over TCP, TLS or a unix socket.

Made by hand, since a general HTTP client costs a call more than emberd does; it speaks with emberd only, which always
tells the length of such an answer.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from emberpool.pool.model.errors import InvalidInput

CONNECT_S = 5.0
KEEP_ALIVE_S = 60.0
"""Shorter than emberd's own, so that no request is sent into a connection that it is just closing."""
PIECE = 256 * 1024
"""Bytes of a body that are written at once, so that the event loop is not held up."""
MOST_HEAD = 64 * 1024
"""Bytes of an answer's head."""


@dataclass(frozen=True)
class RawAnswer:
    """What came back, not yet checked."""

    status: int
    body: bytes
    headers: dict[str, str]
    """Names in lower case."""


@dataclass(frozen=True)
class Address:
    """Where an emberd listens."""

    path: str = ""
    """Of its unix socket; empty for TCP."""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """Of TLS: what the certificate must name."""


def address_of(endpoint: str, tls: ssl.SSLContext | None, server_name: str | None) -> Address:
    """The address in an endpoint. Raises InvalidInput: there is no host or port in it."""
    if endpoint.startswith("unix:"):
        return Address(path=endpoint.removeprefix("unix:"))
    url = urlsplit(endpoint)
    try:
        host, port = url.hostname, url.port
    except ValueError as error:
        raise InvalidInput("endpoint", f"{endpoint!r}: {error}") from error
    if not host:
        raise InvalidInput("endpoint", f"{endpoint!r} has no host")
    return Address("", host, port or (80 if tls is None else 443), tls, server_name)


def head_of(method: str, target: str, headers: dict[str, str], size: int) -> bytes:
    """The head of a request with a body of `size` bytes.

    Raises:
        InvalidInput: a value has a line end, or characters that no header can have.
    """
    lines = [f"{method} {target} HTTP/1.1", "host: emberd", *(f"{name}: {value}" for name, value in headers.items())]
    lines.append(f"content-length: {size}\r\n\r\n")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
        raise InvalidInput("header", "a line end in a value")
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError as error:
        raise InvalidInput("header", str(error)) from error


class NotConnected(Exception):
    """No connection was made, so nothing was sent; its cause says why."""


class Broken(ConnectionError):
    """The connection ended before the answer did, or what came is none."""

    def __init__(self, why: str, unheard: bool = False) -> None:
        super().__init__(why)
        self.unheard = unheard
        """Whether not a byte of an answer came."""


class Exchange:
    """The connections to one emberd: each carries one request at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Connection] = []
        """The one used last is last."""
        self._busy: set[_Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(self, head: bytes, body: bytes, timeout_s: float, again: bool) -> RawAnswer:
        """One request, one answer within `timeout_s`.

        `again`: it may be sent once more if a kept connection turns out to have ended meanwhile.

        Raises:
            NotConnected: nothing was sent.
            TimeoutError, OSError: there is no answer.
        """
        kept = self._kept()
        if kept is not None:
            try:
                return await self._ask_on(kept, head, body, timeout_s)
            except Broken as error:
                if not (again and error.unheard):
                    raise
        try:
            connection = await self._connected(min(CONNECT_S, timeout_s))
        except NotConnected as error:
            if kept is None:
                raise
            raise Broken(f"the connection ended, and then there was none: {error}") from error
        return await self._ask_on(connection, head, body, timeout_s)

    def close(self) -> None:
        """Close every connection and make none any more. A request that is under way ends without an answer."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        idle, self._idle = self._idle, []
        for connection in (*idle, *self._busy):
            connection.close()

    async def _ask_on(self, connection: "_Connection", head: bytes, body: bytes, timeout_s: float) -> RawAnswer:
        self._busy.add(connection)
        try:
            answer = await connection.ask(head, body, timeout_s)
        finally:
            self._busy.discard(connection)
            if connection.is_open:
                self._keep(connection)
        return answer

    def _kept(self) -> "_Connection | None":
        oldest = self._loop.time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    def _keep(self, connection: "_Connection") -> None:
        if self._closed:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_ALIVE_S, self._close_unused)

    def _close_unused(self) -> None:
        oldest = self._loop.time() - KEEP_ALIVE_S
        while self._idle and (self._idle[0].idle_since <= oldest or not self._idle[0].is_open):
            self._idle.pop(0).close()
        self._sweep = None
        if self._idle:
            self._sweep = self._loop.call_at(self._idle[0].idle_since + KEEP_ALIVE_S, self._close_unused)

    async def _connected(self, limit_s: float) -> "_Connection":
        connection = await self._new(limit_s)
        if self._closed:
            connection.close()
            raise NotConnected("the client was closed")
        return connection

    async def _new(self, limit_s: float) -> "_Connection":
        to = self._address
        try:
            async with asyncio.timeout(limit_s):
                if to.path:
                    return (await self._loop.create_unix_connection(_Connection, to.path))[1]
                name = to.server_name if to.tls is not None else None
                return (
                    await self._loop.create_connection(_Connection, to.host, to.port, ssl=to.tls, server_hostname=name)
                )[1]
        except TimeoutError as error:
            raise NotConnected(f"not within {limit_s:g} s") from error
        except OSError as error:
            raise NotConnected(str(error)) from error


class _Connection(asyncio.Protocol):
    """One connection, for one request after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._waiter: asyncio.Future[RawAnswer] | None = None
        self._writable: asyncio.Future[None] | None = None
        """Of a sender that waits until more may be written."""
        self._full = False
        self._received = bytearray()
        self._status, self._headers, self._ends = 0, dict[str, str](), -1
        """Of the answer that is just coming, and where in `_received` it ends; -1 while that is not known."""
        self.is_open = False
        self.idle_since = 0.0

    async def ask(self, head: bytes, body: bytes, timeout_s: float) -> RawAnswer:
        """Send one request and wait for its answer. Without one the connection is closed."""
        waiter: asyncio.Future[RawAnswer] = self._loop.create_future()
        self._waiter = waiter
        limit = self._loop.call_later(timeout_s, self._fail, TimeoutError(f"no answer within {timeout_s:g} s"))
        try:
            if len(body) < PIECE:
                self._transport.write(head + body)
            else:
                await self._send_pieces(head, memoryview(body), waiter)
            return await waiter
        finally:
            limit.cancel()
            self._waiter = None
            if not waiter.done() or waiter.cancelled() or waiter.exception() is not None:
                self.close()

    async def _send_pieces(self, head: bytes, body: memoryview, waiter: asyncio.Future[RawAnswer]) -> None:
        """All of it, unless the answer is there first: a refusal does not wait for what it refuses."""
        self._transport.write(head)
        for start in range(0, len(body), PIECE):
            if self._full:
                self._writable = self._loop.create_future()
                await asyncio.wait((self._writable, waiter), return_when=asyncio.FIRST_COMPLETED)
            if waiter.done():
                self.is_open = False  # what it has of the body is no request
                self._transport.abort()
                return
            self._transport.write(body[start : start + PIECE])

    def close(self) -> None:
        """At once, whatever is under way."""
        self.is_open = False
        self._transport.abort()  # TLS says goodbye at leisure, and a loop that ends before that leaves sockets open
        self._fail(Broken("the connection was closed"))

    def connection_made(self, transport: Any) -> None:
        """It may carry a request."""
        self._transport, self.is_open = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side ended it, or we did."""
        self.is_open = False
        self._fail(Broken(f"the connection ended: {exc or 'closed by the other side'}", self._unheard))

    @property
    def _unheard(self) -> bool:
        """Whether not a byte of an answer came: a head that is known is taken out of what was received."""
        return not self._received and self._ends < 0

    def pause_writing(self) -> None:
        """Enough lies in line."""
        self._full = True

    def resume_writing(self) -> None:
        """Go on."""
        self._full = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def data_received(self, data: bytes) -> None:
        """A part of the answer."""
        if self._waiter is None:
            self.close()  # nobody has asked
            return
        self._received += data
        try:
            if self._ends < 0:
                self._look_for_head()
        except (ValueError, LookupError):
            self.is_open = False
            self._transport.abort()
            self._fail(Broken("what it says is no answer of emberd's"))
            return
        if 0 <= self._ends <= len(self._received):
            self._complete()

    def _look_for_head(self) -> None:
        """Raises ValueError, LookupError: it is no head, or tells no length."""
        end = self._received.find(b"\r\n\r\n", 0, MOST_HEAD)
        if end < 0:
            if len(self._received) > MOST_HEAD:
                raise ValueError("head too long")
            return
        first, *lines = self._received[:end].decode("latin-1").split("\r\n")
        self._status = int(first.split(" ", 2)[1])
        self._headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        del self._received[: end + 4]
        self._ends = int(self._headers["content-length"])
        if self._ends < 0:
            raise ValueError("content-length")

    def _complete(self) -> None:
        body, over = bytes(self._received[: self._ends]), len(self._received) > self._ends
        if over or self._headers.get("connection", "").lower() == "close":
            self.is_open = False
            self._transport.abort()
        answer = RawAnswer(self._status, body, self._headers)
        self._received, self._ends = bytearray(), -1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
