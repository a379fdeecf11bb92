"""Kept-alive HTTP connections to many emberds, over TCP or unix sockets."""

import asyncio
import io
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from emberpool.pool.client.trust import Trust, untrusted, why_untrusted
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

    def __init__(self, trust: Trust | None = None) -> None:
        """`trust`: None if no pod is to be spoken to by TLS."""
        self._trust = trust
        self._sessions: OrderedDict[str, aiohttp.ClientSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close every connection."""
        sessions, self._sessions = self._sessions, OrderedDict()
        await asyncio.gather(*self._closing, *(_close(session) for session in sessions.values()))

    async def send(
        self, pod: str, endpoint: str, method: str, target: str, headers: dict[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer:
        """One request, one answer within `timeout_s`.

        Raises:
            PodUnreachable: `sent` is False only if no connection was made.
        """
        origin, name = self._origin(pod, endpoint)
        session, url = self._session(endpoint), URL(origin + target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with session.request(
                method, url, headers=headers, data=_body(body), timeout=timeout, server_hostname=name
            ) as response:
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
        origin, name = self._origin(pod, endpoint)
        session, url = self._session(endpoint), URL(origin + target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=stall_s)
        try:
            response = await session.request(
                method, url, headers=headers, data=body, timeout=timeout, server_hostname=name
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(pod, error) from error
        async with response:
            yield response

    def _session(self, endpoint: str) -> aiohttp.ClientSession:
        known = self._sessions.get(endpoint)
        if known is None:
            known = self._sessions[endpoint] = aiohttp.ClientSession(
                connector=self._connector(endpoint), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        self._sessions.move_to_end(endpoint)
        while len(self._sessions) > SESSIONS_KEPT:
            task = asyncio.ensure_future(_close(self._sessions.popitem(last=False)[1]))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return known

    def _connector(self, endpoint: str) -> aiohttp.BaseConnector:
        if endpoint.startswith("unix:"):
            return aiohttp.UnixConnector(endpoint.removeprefix("unix:"), limit=0, keepalive_timeout=KEEP_ALIVE_S)
        tls = self._trust.context if self._trust is not None else True
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=tls)

    def _origin(self, pod: str, endpoint: str) -> tuple[str, str | None]:
        """What a URL begins with, and, of TLS, what the certificate must name: the pod's address means nothing.

        Raises:
            PodUnreachable: this worker's settings do not let it speak to such a pod.
            InvalidInput: it is no endpoint.
        """
        if endpoint.startswith("unix:"):
            return "http://emberd", None
        if endpoint.startswith("https://"):
            if self._trust is None:
                raise untrusted(pod, "it speaks TLS: set tls_ca_file on the worker")
            return endpoint.rstrip("/"), self._trust.server_name
        if endpoint.startswith("http://"):
            if self._trust is not None and self._trust.only:
                raise untrusted(pod, "it does not speak TLS, and the worker's tls_only is set")
            return endpoint.rstrip("/"), None
        raise InvalidInput("endpoint", f"{endpoint!r} is neither unix:/path, http://host:port nor https://host:port")


def unreachable(pod: str, error: Exception) -> PodUnreachable:
    """What a failure of the connection means."""
    if why := why_untrusted(error):
        return untrusted(pod, why)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return PodUnreachable(pod, f"no connection: {error}", sent=False)
    return PodUnreachable(pod, f"no answer: {type(error).__name__} {error}".rstrip(), sent=True)


async def _close(session: aiohttp.ClientSession) -> None:
    if session.connector is not None:
        # TLS says goodbye at leisure, and a loop that ends before that leaves sockets open.
        await session.connector.close(abort_ssl=True)
    await session.close()


def _body(body: bytes) -> bytes | io.BytesIO:
    """A large body is written in pieces, so that the event loop is not held up."""
    return body if len(body) < LARGE else io.BytesIO(body)
