"""One Prometheus endpoint for both worlds: emberpool's own metrics, and those that Temporal's SDK keeps in its core.

The SDK's exporter wants a port of its own. It gets one on loopback, and its text is passed on from here, so that an
operator scrapes one address per worker.
"""

import asyncio
import logging
import re
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from emberpool.activities.measures import SDK_BUCKETS
from emberpool.activities.metrics import PoolMetrics
from emberpool.activities.pools import Pools
from emberpool.pool.index.contract import PoolIndex
from emberpool.pool.model.errors import EmberpoolError, InvalidInput
from emberpool.pool.model.state import PodState
from emberpool.worker.health import alive, readiness
from emberpool.worker.stack.ports import HOST, choose_port

log = logging.getLogger(__name__)

INDEX_S: Final = 2.0
"""A scrape waits this long for an index, so that one that hangs costs no scrape."""
STUCK_S = 300.0
"""A pod that drains for longer than several deletions may take is stuck."""
MOST_STUCK: Final = 100
"""Of more than that it matters not how many they are."""
PORT_ATTEMPTS: Final = 5
OPEN_METRICS_END: Final = re.compile(r"^# EOF\s*\Z", re.M)


class MetricsServer:
    """The endpoint of one worker process, from `async with` to its end."""

    def __init__(self, address: str, pools: Pools) -> None:
        """`address` is HOST:PORT; port 0 is any free one."""
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._pools = pools
        self._core = ""
        self._runner: web.AppRunner | None = None
        self.url = ""
        """Set once it serves."""
        self.serving = asyncio.Event()

    def runtime(self) -> Runtime:
        """A runtime for the client whose SDK metrics this endpoint passes on.

        Raises:
            InvalidInput: no port is free on loopback.
        """
        problem = ""
        for _ in range(PORT_ATTEMPTS):
            core = f"{HOST}:{choose_port('metrics', None, '')}"
            config = PrometheusConfig(
                bind_address=core,
                durations_as_seconds=True,
                unit_suffix=True,
                counters_total_suffix=False,
                histogram_bucket_overrides=SDK_BUCKETS,
            )
            try:
                made = Runtime(telemetry=TelemetryConfig(metrics=config))
            except ValueError as error:  # the port was taken meanwhile
                problem = str(error)
                continue
            self._core = f"http://{core}/metrics"
            return made
        raise InvalidInput("metrics_address", f"the SDK's exporter finds no port: {problem}")

    async def __aenter__(self) -> Self:
        """Serve.

        Raises:
            InvalidInput: the address cannot be bound.
        """
        app = web.Application()
        app.router.add_get("/metrics", self._scrape)
        app.router.add_get("/healthz", alive)
        app.router.add_get("/readyz", self._ready)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            raise InvalidInput("metrics_address", f"{self._host}:{self._port} cannot be served: {error}") from error
        self._runner = runner
        host, port = runner.addresses[0][:2]
        self.url = f"http://[{host}]:{port}/metrics" if ":" in str(host) else f"http://{host}:{port}/metrics"
        self.serving.set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _scrape(self, request: web.Request) -> web.Response:
        await asyncio.gather(*[count(pool.index, pool.metrics) for pool in self._pools.all()])
        core = await self._core_text()
        ours = generate_latest(self._pools.metrics.registry).decode()
        return web.Response(body=(ours + core).encode(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _ready(self, request: web.Request) -> web.Response:
        ready, text = await readiness(self._pools)
        return web.Response(text=text, status=200 if ready else 503)

    async def _core_text(self) -> str:
        """The SDK's metrics; a comment in their place if its exporter does not answer."""
        if not self._core:
            return "# the client was given a runtime of its own: the SDK's metrics are where that one serves them\n"
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=INDEX_S)) as http:
                async with http.get(self._core) as answer:
                    return OPEN_METRICS_END.sub("", await answer.text())
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("the SDK's metrics cannot be read: %s", error)
            return "# the SDK's metrics could not be read\n"


async def count(index: PoolIndex, metrics: PoolMetrics) -> None:
    """Set a pool's gauges to what its index says now."""
    try:
        async with asyncio.timeout(INDEX_S):
            counts = await index.counts()
            stuck = await index.pods(PodState.DRAINING, MOST_STUCK, older_than_s=STUCK_S)
            metrics.counted(counts, len(stuck))
    except (EmberpoolError, TimeoutError) as error:
        log.warning("pool %s cannot be counted: %s", metrics.profile, error)
        metrics.counted(None)
