"""Kept-alive HTTP connections to many emberds, over TCP or unix sockets."""

import asyncio
import io
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from emberpool.pool.model.errors import InvalidInput, PodUnreachable

CONNECT_S = 5.0
KEEP_ALIVE_S = 60.0
"""Shorter than emberd's own, so that no request is sent into a connection that it is just closing."""
LARGE = 256 * 1024
"""Bytes from which on a body is worth a thread or pieces."""
SESSIONS_KEPT = 1024
"""Endpoints with open connections; the longest unused is closed first."""


@dataclass(frozen=True)
class RawAnswer:
    """What came back, not yet checked."""

    status: int
    body: bytes
    headers: dict[str, str]
    """Names in lower case."""


class Transport:
    """One per event loop."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, aiohttp.ClientSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close every connection."""
        sessions, self._sessions = self._sessions, OrderedDict()
        await asyncio.gather(*self._closing, *(session.close() for session in sessions.values()))

    async def send(
        self, pod: str, endpoint: str, method: str, target: str, headers: dict[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer:
        """One request, one answer within `timeout_s`.

        Raises:
            PodUnreachable: `sent` is False only if no connection was made.
        """
        session, url = self._session(endpoint), URL(_origin(endpoint) + target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with session.request(method, url, headers=headers, data=_body(body), timeout=timeout) as response:
                answer = await response.read()
                named = {name.lower(): value for name, value in response.headers.items()}
                return RawAnswer(response.status, answer, named)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(pod, error) from error

    @asynccontextmanager
    async def open(
        self,
        pod: str,
        endpoint: str,
        method: str,
        target: str,
        headers: dict[str, str],
        body: AsyncIterable[bytes] | None,
        stall_s: float,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """One request with a body of unknown length, and its answer, whose body is still to be read.

        `stall_s`: longest time without a byte of the answer. It may raise aiohttp's errors within the block:
        `unreachable` says what they mean.

        Raises:
            PodUnreachable: `sent` is False only if no connection was made.
        """
        session, url = self._session(endpoint), URL(_origin(endpoint) + target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=stall_s)
        try:
            response = await session.request(method, url, headers=headers, data=body, timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(pod, error) from error
        async with response:
            yield response

    def _session(self, endpoint: str) -> aiohttp.ClientSession:
        known = self._sessions.get(endpoint)
        if known is None:
            known = self._sessions[endpoint] = aiohttp.ClientSession(
                connector=_connector(endpoint), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        self._sessions.move_to_end(endpoint)
        while len(self._sessions) > SESSIONS_KEPT:
            task = asyncio.ensure_future(self._sessions.popitem(last=False)[1].close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return known


def unreachable(pod: str, error: Exception) -> PodUnreachable:
    """What a failure of the connection means."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return PodUnreachable(pod, f"no connection: {error}", sent=False)
    return PodUnreachable(pod, f"no answer: {type(error).__name__} {error}".rstrip(), sent=True)


def _connector(endpoint: str) -> aiohttp.BaseConnector:
    if endpoint.startswith("unix:"):
        return aiohttp.UnixConnector(endpoint.removeprefix("unix:"), limit=0, keepalive_timeout=KEEP_ALIVE_S)
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)


def _body(body: bytes) -> bytes | io.BytesIO:
    """A large body is written in pieces, so that the event loop is not held up."""
    return body if len(body) < LARGE else io.BytesIO(body)


def _origin(endpoint: str) -> str:
    if endpoint.startswith("unix:"):
        return "http://emberd"
    if endpoint.startswith("http://"):
        return endpoint.rstrip("/")
    raise InvalidInput("endpoint", f"{endpoint!r} is neither unix:/path nor http://host:port")
