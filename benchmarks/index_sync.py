"""How far the index lags behind the pods of a cluster, by the real provider, tending of a pool, and Redis."""

import asyncio
import time
from collections.abc import Callable, Set

from figures import quantile
from record_pools import account, build

from emberpool.activities.line import WaitingLine
from emberpool.activities.metrics import Metrics
from emberpool.activities.pools import Pool
from emberpool.activities.tend import Tender
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.connection import connect
from emberpool.pool.index.contract import FreedReply, PodRecord
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.access import Access, KubernetesApi
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.worker.stack.redis_server import RedisServer

FAILED = {"status": {"phase": "Failed", "reason": "Marked", "message": "marked by a measurement"}}
PATIENCE_S = 120.0


class Noted(RedisIndex):
    """Notes when Redis has answered."""

    looked_at: set[PodName]
    failed_at: dict[PodName, float]
    changed: asyncio.Event

    def note(self) -> None:
        """Begin."""
        self.looked_at, self.failed_at, self.changed = set(), {}, asyncio.Event()

    async def pod(self, name: PodName) -> PodRecord | None:
        """What the tending asks of each pod that it sees for the first time."""
        record = await super().pod(name)
        self.looked_at.add(name)
        self.changed.set()
        return record

    async def pod_failed(self, name: PodName, reason: str) -> FreedReply:
        """From here on the index gives the pod to nobody."""
        reply = await super().pod_failed(name, reason)
        self.failed_at.setdefault(name, time.monotonic())
        self.changed.set()
        return reply

    async def until(self, names: Set[PodName], of: Callable[[], Set[PodName]]) -> None:
        """Wait until all of them were noted.

        Raises:
            TimeoutError: they are not, within PATIENCE_S.
        """
        async with asyncio.timeout(PATIENCE_S):
            while not names <= of():
                self.changed.clear()
                await self.changed.wait()


async def lags(
    api: KubernetesApi, access: Access, profile: Profile, names: list[PodName], at_once: int
) -> dict[str, float]:
    """A worker begins to tend this pool of so many pods, then some of them fail: one after the other, and many at once.

    Lag: from the API server's answer to the write that failed a pod, to Redis's answer to the worker.
    """
    async with RedisServer(None) as server, await connect(server.url) as redis:
        index = Noted(redis, "scale", profile.name)
        index.note()
        await build(index, [account(name) for name in names])
        provider = KubernetesProvider(profile, access, b"k" * 32, "scale")
        client, metrics = EmberdClient(b"k" * 32), Metrics().of(profile.name)
        pool = Pool(profile, index, provider, client, WaitingLine(index), "scale", "", b"k" * 32, metrics)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tending = group.create_task(Tender(pool, 60.0).watch(group))
            try:
                return await _measured(api, index, names, at_once, began)
            finally:
                tending.cancel()
                await asyncio.wait([tending])
                await provider.aclose()
                await client.aclose()
                await index.aclose()


async def _measured(
    api: KubernetesApi, index: Noted, names: list[PodName], at_once: int, began: float
) -> dict[str, float]:
    await index.until(set(names), lambda: index.looked_at)
    figures = {"index_first_sync_s": time.monotonic() - began}
    answered: dict[PodName, float] = {}

    async def fail(name: PodName) -> None:
        path = f"/api/v1/namespaces/{await api.namespace()}/pods/{name}/status"
        await api.call("PATCH", path, body=FAILED, content="application/merge-patch+json")
        answered[name] = time.monotonic()

    def told(group: list[PodName]) -> list[float]:
        return [1000 * max(0.0, index.failed_at[name] - answered[name]) for name in group]

    one_by_one, many = names[:at_once], names[at_once : 2 * at_once]
    for name in one_by_one:
        await fail(name)
        await index.until({name}, index.failed_at.keys)
    await asyncio.gather(*(fail(name) for name in many))
    await index.until(set(many), index.failed_at.keys)
    for what, group in (("one_by_one", one_by_one), ("at_once", many)):
        for said, share in (("p50", 0.5), ("p99", 0.99)):
            figures[f"index_lag_{what}_{said}_ms"] = quantile(told(group), share)
    return figures
