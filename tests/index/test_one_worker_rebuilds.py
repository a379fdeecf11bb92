"""One worker at a time rebuilds a lost index, however long the pods take to answer; whoever stops gives way at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from fixtures.redis import keys_of
from fixtures.waiting import wait_until

from emberpool.activities import rebuild as rebuilding
from emberpool.activities.line import WaitingLine
from emberpool.activities.metrics import Metrics
from emberpool.activities.pools import Pool
from emberpool.activities.rebuild import rebuild
from emberpool.pool.client.answers import EmberdState
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.model.pod import Phase, PodFacts
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.provider import Provider

FOREVER = 3600.0


@dataclass
class Pods:
    """Pods that answer in their own time, as workers reach them: what provider and emberds would say."""

    delays: dict[str, float]
    """By name, seconds until its emberd answers."""
    stuck: set[str] = field(default_factory=set[str])
    """Those that do not go when they are deleted."""
    asked: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    at_once: int = 0
    most_at_once: int = 0

    async def list(self) -> list[PodFacts]:
        return [
            PodFacts(name=PodName(name), uid=PodUid("u"), phase=Phase.READY, endpoint=f"unix:/{name}", image="base")
            for name in self.delays
        ]

    async def delete(self, name: PodName) -> None:
        if name in self.stuck:
            await asyncio.sleep(FOREVER)
        self.deleted.append(name)

    async def state(self, name: PodName) -> EmberdState:
        self.asked.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.delays[name])
        finally:
            self.at_once -= 1
        about = {"version": 1, "pod": name, "uid": "u", "boot_id": "b", "state": "clean", "tag": "", "epoch": 0}
        return EmberdState.model_validate(
            {**about, "lease": "", "hold_s": 0, "idle_s": 0, "uses": 0, "room_mode": "plain"}
        )


class _Client(EmberdClient):
    """Asks these pods in place of emberds."""

    def __init__(self, pods: Pods) -> None:
        super().__init__(b"k" * 32)
        self._pods = pods

    async def state(self, name: PodName, endpoint: str, timeout_s: float = 15.0) -> EmberdState:
        """What the pod says."""
        return await self._pods.state(name)


def worker(index: RedisIndex, pods: Pods) -> Pool:
    """The pool as one worker reaches it."""
    provider, metrics = cast(Provider, pods), Metrics().of("p")
    client = _Client(pods)
    return Pool(Profile(name="p"), index, provider, client, WaitingLine(index), "d", "t", b"k" * 32, metrics)


@pytest.fixture
async def lost(index: RedisIndex) -> RedisIndex:
    """An index that was flushed."""
    await index.redis.commands.delete(*await keys_of(index.redis, index))
    return index


@pytest.fixture
async def another(lost: RedisIndex, redis_url: str) -> AsyncIterator[RedisIndex]:
    """The same index by another worker's connection."""
    async with await connect(redis_url) as redis:
        yield RedisIndex(redis, lost.deployment, lost.name)


async def asking(pods: Pods) -> None:
    """Wait until a rebuilder waits for an answer."""

    async def begun() -> bool:
        return pods.at_once > 0

    await wait_until(begun)


def rebuilds(pool: Pool, outcome: str) -> float:
    """How many this worker counted."""
    labels = {"profile": "p", "outcome": outcome}
    return pool.metrics.metrics.registry.get_sample_value("emberpool_index_rebuild_seconds_count", labels) or 0.0


def rebuilt_pods(pool: Pool, outcome: str) -> float:
    """How many pods it counted."""
    labels = {"profile": "p", "outcome": outcome}
    return pool.metrics.metrics.registry.get_sample_value("emberpool_index_rebuild_pods_total", labels) or 0.0


async def test_pods_may_take_longer_than_the_lock(
    lost: RedisIndex, another: RedisIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers try all the time, while twenty pods answer slowly and one never: one rebuilds, and no pod is lost."""
    monkeypatch.setattr(rebuilding, "LOCK_S", 0.3)
    delays = {f"p{number}": 0.4 + number / 50 for number in range(19)} | {"silent": FOREVER}
    pods = Pods(delays)
    workers = [worker(lost, pods), worker(another, pods)]

    async def try_on(pool: Pool) -> list[bool]:
        tried = list[bool]()
        while not await lost.redis.commands.exists(f"{lost.base}generation"):
            tried.append(await rebuild(pool))
            await asyncio.sleep(0.01)
        return tried

    tried = await asyncio.wait_for(asyncio.gather(*(try_on(pool) for pool in workers)), 20)
    assert sum(sum(one) for one in tried) == 1 and min(len(one) for one in tried) >= 1, tried
    assert sorted(pods.asked) == sorted(delays), "each was asked once"
    assert pods.deleted == ["silent"]
    assert {pod.name for pod in await lost.pods(PodState.IDLE, 100)} == delays.keys() - {"silent"}
    assert sum(rebuilds(pool, "done") for pool in workers) == 1
    assert [sum(rebuilt_pods(pool, word) for pool in workers) for word in ("heard", "silent")] == [19, 1]


async def test_who_lost_the_lock_stops_at_once(lost: RedisIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker has the lock: nobody is asked or deleted any more, and its lock is left alone."""
    monkeypatch.setattr(rebuilding, "LOCK_S", 0.3)
    pods = Pods({"p1": FOREVER, "p2": 0.0})
    pool = worker(lost, pods)
    trying = asyncio.create_task(rebuild(pool))
    await asking(pods)
    await lost.redis.commands.delete(f"{lost.base}rebuild_lock")
    assert await lost.try_rebuild_lock("other", 30)
    assert not await asyncio.wait_for(trying, 1.5)
    assert pods.deleted == [] and rebuilds(pool, "lost") == 1
    assert await lost.keep_rebuild_lock("other", 30)


@pytest.mark.parametrize("writing", [False, True])
async def test_a_rebuilder_that_is_stopped_gives_way(lost: RedisIndex, another: RedisIndex, writing: bool) -> None:
    """A worker that shuts down leaves the lock to the next, also when it has begun to write."""
    pods = Pods({"p1": 0.0 if writing else 1.5})
    pool = worker(lost, pods)
    begun = asyncio.Event()
    if writing:

        async def never(who: str, _: object) -> bool:
            await lost.redis.commands.set(f"{lost.base}rebuild_lock", f"{who}/token of its pages", px=30_000)
            begun.set()
            return await asyncio.sleep(FOREVER, False)

        cast(Any, lost).rebuild = never
    pool.rebuilder.begin(pool)
    pool.rebuilder.begin(pool)
    await (begun.wait() if writing else asking(pods))
    assert not await another.try_rebuild_lock("other", 30)
    await asyncio.wait_for(pool.rebuilder.aclose(), 1)
    assert pods.asked == ["p1"] and pods.deleted == []

    async def left() -> bool:
        return await another.try_rebuild_lock("other", 30)

    await wait_until(left, 1)


async def test_a_rebuilder_in_trouble_gives_way(lost: RedisIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider cannot be reached: the next one tries after a moment, not when the lock has run out."""
    monkeypatch.setattr(rebuilding, "AGAIN_S", 0.05)
    pods = Pods({})
    pool = worker(lost, pods)

    async def away() -> list[PodFacts]:
        raise PoolUnavailable("away")

    cast(Any, pods).list = away
    with pytest.raises(PoolUnavailable):
        await rebuild(pool)
    assert rebuilds(pool, "failed") == 1

    async def free() -> bool:
        return await lost.try_rebuild_lock("other", 30)

    await wait_until(free, 2)


async def test_a_silent_pod_that_does_not_go_holds_up_nobody(lost: RedisIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a lost node: the index is built, and the pod keeps its place, dirty, until tending has deleted it."""
    monkeypatch.setattr(rebuilding, "SILENT_S", 0.1)
    monkeypatch.setattr(rebuilding, "DELETE_S", 0.2)
    pods = Pods({"p1": 0.0, "goes": FOREVER, "stays": FOREVER}, stuck={"stays"})
    assert await asyncio.wait_for(rebuild(worker(lost, pods)), 5)
    assert pods.deleted == ["goes"]
    assert [pod.name for pod in await lost.pods(PodState.IDLE, 10)] == ["p1"]
    (stays,) = await lost.pods(PodState.DIRTY, 10)
    assert (stays.name, stays.epoch, stays.tag) == ("stays", 0, "")


async def test_many_pods_are_asked_some_at_a_time(lost: RedisIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, so many are asked at once, and only those have tasks."""
    monkeypatch.setattr(rebuilding, "AT_ONCE", 20)
    pods = Pods({f"p{number}": 0.001 for number in range(600)})
    trying = asyncio.create_task(rebuild(worker(lost, pods)))
    await asking(pods)
    assert len(asyncio.all_tasks()) < 20 + 15
    assert await trying
    assert pods.most_at_once == 20 and len(pods.asked) == 600
    assert (await lost.counts()).idle_fresh == 600
