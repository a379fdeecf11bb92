"""The one place that makes a client of the Kubernetes API, and the only one that imports its package.

Pods travel as plain JSON: of a pod's two hundred fields a handful are looked at, and a watch brings many pods.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp

from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.pool.model.frozen import Frozen

log = logging.getLogger(__name__)

ANSWER_S = 30.0
"""Seconds for any answer that is not a watch."""
LATE_S = 60.0
"""How much longer than it was asked to a server may keep a watch open."""
SILENT_WATCH_S = 90.0
"""A watch that says nothing for longer is begun anew. The server sends a bookmark about every minute: so long a silence
is most likely a connection of which the other end is gone, since its host was lost or a NAT forgot it. Where a server
sends no bookmarks, a quiet watch is only asked for again a little more often."""
UNAUTHORIZED = 401
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
Json = dict[str, Any]


class Access(Frozen):
    """Which cluster, and which namespace of it. Empty texts mean what kubectl would take, or the pod's own account."""

    namespace: str = ""
    kubeconfig: str = ""
    context: str = ""


class ApiRefused(Exception):
    """The API server answered, and not with success. Caught by the provider, which knows what it means there."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class KubernetesApi:
    """JSON in and out of one API server. Connects when it is first used."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._client: Any = None
        self._namespace = access.namespace
        self._opening = asyncio.Lock()

    async def aclose(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            session = cast(aiohttp.ClientSession | None, client.rest_client.pool_manager)
            if session is not None and session.connector is not None:
                # TLS says goodbye at leisure, and a loop that ends before that leaves sockets open.
                await session.connector.close(abort_ssl=True)
            await client.close()

    async def namespace(self) -> str:
        """The namespace that pods are made in."""
        await self._opened()
        return self._namespace

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | list[Json] | None = None,
        content: str = "application/json",
    ) -> Json:
        """One request and its answer.

        Raises:
            ApiRefused: the server answered with an error.
            PoolUnavailable: it cannot be reached, or is too busy.
        """
        async with self._answered(method, path, query, body, content, _limit(ANSWER_S)) as response:
            return _decoded(await response.read())

    @asynccontextmanager
    async def lines(self, path: str, query: Mapping[str, str], timeout_s: float) -> AsyncGenerator["Lines"]:
        """A watch: its events as they come, until the server ends it or has said nothing for too long.

        Raises:
            ApiRefused, PoolUnavailable: as `call`, also while it is read.
        """
        limit = _limit(timeout_s + LATE_S, SILENT_WATCH_S)
        async with self._answered("GET", path, query, None, "application/json", limit) as response:
            yield Lines(response)

    @asynccontextmanager
    async def _answered(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content: str,
        limit: aiohttp.ClientTimeout,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        try:
            response = await self._sent(method, path, query, body, content, limit)
            if response.status == UNAUTHORIZED:
                # The token was replaced before the client thought of reading it again.
                _let_go(response)
                await self._load((await self._opened()).configuration)
                response = await self._sent(method, path, query, body, content, limit)
            try:
                if response.status >= 300:
                    raise _refusal(response.status, await response.read())
                yield response
            finally:
                _let_go(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PoolUnavailable(f"the Kubernetes API does not answer: {type(error).__name__} {error}") from error

    async def _sent(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content: str,
        limit: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        client = await self._opened()
        headers = {"Accept": "application/json", "Content-Type": content}
        request = await client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        answer = await client.call_api(*request, _request_timeout=limit)
        return cast(aiohttp.ClientResponse, answer.response)

    async def _opened(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await self._open()
            return self._client

    async def _open(self) -> Any:
        from kubernetes.aio import client  # large: only workers with such pools pay for it

        settings = cast(Any, client.Configuration())
        await self._load(settings)
        # Watches and waits each hold a connection; a hundred, the default, would make the next call queue behind them.
        settings.connection_pool_maxsize = 0
        return client.ApiClient(settings)

    async def _load(self, settings: Any) -> None:
        """Read address and credentials, as they are now, into the client's settings.

        Raises:
            InvalidInput: they cannot be read.
        """
        from kubernetes.aio import config

        loaders = cast(Any, config)
        try:
            if self._inside():
                loaders.load_incluster_config(client_configuration=settings)
                self._namespace = self._namespace or IN_POD.with_name("namespace").read_text().strip()
            else:
                path = self._access.kubeconfig or str(loaders.KUBE_CONFIG_DEFAULT_LOCATION)
                context = self._access.context or None
                await loaders.load_kube_config(path, context, client_configuration=settings, persist_config=False)
                self._namespace = self._namespace or _named_namespace(loaders, path, context)
        except (loaders.ConfigException, OSError) as error:
            raise InvalidInput("kubeconfig", f"cannot be used: {error}") from error

    def _inside(self) -> bool:
        """Whether our own pod's account is what to use."""
        return not self._access.kubeconfig and not os.environ.get("KUBECONFIG") and IN_POD.exists()


class Lines:
    """Events of a watch. Lines are put together from pieces: a pod with long annotations is longer than any buffer."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncGenerator[Json]:
        return self._read()

    async def _read(self) -> AsyncGenerator[Json]:
        rest = b""
        try:
            async for piece in self._response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield _decoded(line)
        except aiohttp.ServerTimeoutError:  # not of the whole, but of the silence since the last piece
            log.info("a watch of the Kubernetes API has said nothing for %.0f s: it is begun anew", SILENT_WATCH_S)


def _limit(total_s: float, silent_s: float | None = None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=ANSWER_S, sock_read=silent_s)


def _let_go(response: aiohttp.ClientResponse) -> None:
    """Keep the connection if the answer was read to its end; else cut it off."""
    transport = response.connection.transport if response.connection is not None else None
    response.close()
    if transport is not None:
        transport.abort()


def _decoded(data: bytes) -> Json:
    try:
        return cast(Json, json.loads(data))
    except ValueError as error:
        raise PoolUnavailable(f"the Kubernetes API answered no JSON: {data[:200]!r}") from error


def _refusal(status: int, body: bytes) -> Exception:
    try:
        said = cast(Json, json.loads(body))
    except ValueError:
        said = {"reason": "", "message": body[:500].decode(errors="replace")}
    reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    if status == 429 or status >= 500:
        return PoolUnavailable(f"the Kubernetes API is too busy: {status} {reason} {message}")
    return ApiRefused(status, reason, message)


def _named_namespace(loaders: Any, path: str, context: str | None) -> str:
    contexts, active = loaders.list_kube_config_contexts(path)
    chosen = next((one for one in contexts if one["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")
