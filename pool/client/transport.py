"""Kept-alive HTTP connections to many emberds, over TCP or unix sockets."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
from yarl import URL

from emberpool.pool.client.exchange import (
    CONNECT_S,
    KEEP_ALIVE_S,
    Exchange,
    NotConnected,
    RawAnswer,
    address_of,
    head_of,
)
from emberpool.pool.client.trust import Trust, untrusted, why_untrusted
from emberpool.pool.model.errors import InvalidInput, PodUnreachable

__all__ = ["LARGE", "RawAnswer", "Transport", "unreachable"]

LARGE = 256 * 1024
"""Bytes from which on a body is worth a thread."""
SESSIONS_KEPT = 1024
"""Endpoints with open connections; the longest unused is closed first, and none that is in use, be they more."""


class _Endpoint:
    """The connections to one endpoint, and how many requests are under way on them."""

    def __init__(self, exchange: Exchange, connector: Callable[[], aiohttp.BaseConnector]) -> None:
        self.requests = 0
        self.exchange = exchange
        """Of requests and answers of known length."""
        self._connector = connector
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """Of bodies that are streamed."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session

    async def close(self) -> None:
        """Cut what is under way and open nothing any more."""
        self.exchange.close()
        if self._session is not None:
            if self._session.connector is not None:
                # TLS says goodbye at leisure, and a loop that ends before that leaves sockets open.
                await self._session.connector.close(abort_ssl=True)
            await self._session.close()


class Transport:
    """One per event loop."""

    def __init__(self, trust: Trust | None = None) -> None:
        """`trust`: None if no pod is to be spoken to by TLS."""
        self._trust = trust
        self._in_use: dict[str, _Endpoint] = {}
        self._unused: OrderedDict[str, _Endpoint] = OrderedDict()
        """The longest unused first."""
        self._closing: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close every connection."""
        endpoints = [*self._unused.values(), *self._in_use.values()]
        self._in_use, self._unused = {}, OrderedDict()
        await asyncio.gather(*self._closing, *(endpoint.close() for endpoint in endpoints))

    async def send(
        self, pod: str, endpoint: str, method: str, target: str, headers: dict[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer:
        """One request, one answer within `timeout_s`.

        Raises:
            PodUnreachable: `sent` is False only if no connection was made.
        """
        self._origin(pod, endpoint)
        head = head_of(method, target, headers, len(body))
        with self._used(endpoint) as used:
            try:
                return await used.exchange.ask(head, body, timeout_s, again=method != "POST")
            except NotConnected as error:
                raise unreachable(pod, error) from error.__cause__
            except OSError as error:
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
        with self._used(endpoint) as used:
            try:
                response = await used.session.request(
                    method, url, headers=headers, data=body, timeout=timeout, server_hostname=name
                )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise unreachable(pod, error) from error
            async with response:
                yield response

    @contextmanager
    def _used(self, endpoint: str) -> Generator[_Endpoint]:
        """The endpoint's connections, which stay open for as long as the block lasts."""
        used = self._in_use.get(endpoint)
        if used is None:
            used = self._unused.pop(endpoint) if endpoint in self._unused else self._opened(endpoint)
            self._in_use[endpoint] = used
        used.requests += 1
        self._close_unused()
        try:
            yield used
        finally:
            used.requests -= 1
            # All may have been closed meanwhile, and the endpoint may have been opened anew since.
            if not used.requests and self._in_use.get(endpoint) is used:
                self._unused[endpoint] = self._in_use.pop(endpoint)
                self._close_unused()

    def _opened(self, endpoint: str) -> _Endpoint:
        trust = self._trust if endpoint.startswith("https://") else None
        tls, name = (trust.context, trust.server_name) if trust is not None else (None, None)
        return _Endpoint(Exchange(address_of(endpoint, tls, name)), lambda: self._connector(endpoint))

    def _close_unused(self) -> None:
        """Down to the bound, unless all that are left are in use."""
        while self._unused and len(self._unused) + len(self._in_use) > SESSIONS_KEPT:
            task = asyncio.ensure_future(self._unused.popitem(last=False)[1].close())
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
    if isinstance(error, NotConnected | aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return PodUnreachable(pod, f"no connection: {error}", sent=False)
    return PodUnreachable(pod, f"no answer: {type(error).__name__} {error}".rstrip(), sent=True)
