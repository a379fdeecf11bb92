"""Kept-alive HTTP connections to many emberds, over TCP or unix sockets."""

import asyncio
import io
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Generator
from contextlib import asynccontextmanager, contextmanager
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
"""Endpoints with open connections; the longest unused is closed first, and none that is in use, be they more."""


@dataclass(frozen=True)
class RawAnswer:
    """What came back, not yet checked."""

    status: int
    body: bytes
    headers: dict[str, str]
    """Names in lower case."""


@dataclass
class _InUse:
    """An endpoint's connections, and how many requests are under way on them."""

    session: aiohttp.ClientSession
    requests: int = 0


class Transport:
    """One per event loop."""

    def __init__(self, trust: Trust | None = None) -> None:
        """`trust`: None if no pod is to be spoken to by TLS."""
        self._trust = trust
        self._in_use: dict[str, _InUse] = {}
        self._unused: OrderedDict[str, aiohttp.ClientSession] = OrderedDict()
        """The longest unused first."""
        self._closing: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close every connection."""
        sessions = [*self._unused.values(), *(used.session for used in self._in_use.values())]
        self._in_use, self._unused = {}, OrderedDict()
        await asyncio.gather(*self._closing, *map(_close, sessions))

    async def send(
        self, pod: str, endpoint: str, method: str, target: str, headers: dict[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer:
        """One request, one answer within `timeout_s`.

        Raises:
            PodUnreachable: `sent` is False only if no connection was made.
        """
        origin, name = self._origin(pod, endpoint)
        url = URL(origin + target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        with self._session(endpoint) as session:
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
        url = URL(origin + target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=stall_s)
        with self._session(endpoint) as session:
            try:
                response = await session.request(
                    method, url, headers=headers, data=body, timeout=timeout, server_hostname=name
                )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise unreachable(pod, error) from error
            async with response:
                yield response

    @contextmanager
    def _session(self, endpoint: str) -> Generator[aiohttp.ClientSession]:
        """The endpoint's connections, which stay open for as long as the block lasts."""
        used = self._in_use.get(endpoint)
        if used is None:
            kept = self._unused.pop(endpoint) if endpoint in self._unused else self._opened(endpoint)
            used = self._in_use[endpoint] = _InUse(kept)
        used.requests += 1
        self._close_unused()
        try:
            yield used.session
        finally:
            used.requests -= 1
            # All may have been closed meanwhile, and the endpoint may have been opened anew since.
            if not used.requests and self._in_use.get(endpoint) is used:
                self._unused[endpoint] = self._in_use.pop(endpoint).session
                self._close_unused()

    def _opened(self, endpoint: str) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._connector(endpoint), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    def _close_unused(self) -> None:
        """Down to the bound, unless all that are left are in use."""
        while self._unused and len(self._unused) + len(self._in_use) > SESSIONS_KEPT:
            task = asyncio.ensure_future(_close(self._unused.popitem(last=False)[1]))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

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
