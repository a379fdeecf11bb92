"""What the size of a pool and of its line costs the index, at 1, 16 and 256 clients; and 300 claims at once."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from figures import Measured, ms, quantile
from lean_caller import LeanIndex, open_connection

from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.contract import ClaimRequest, HandedTo, RebuiltPod, RecycleStarted, Released
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Holder, Wait
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag
from emberpool.pool.model.recycle import Attestation, RecycleTier

NAME = "index_scale"
SMALL, LARGE, WAITERS, BURST = 1_000, 100_000, 10_000, 300
CLIENTS = (1, 16, 256)
ROUNDS = 5
"""The pools are measured by turns, so that what else the machine does falls on all of them."""
SETTING = (
    "Real: Redis and the index's scripts; pods are records only. A closed loop per client, each with a bare connection "
    "of its own, all in one process. A cycle: claim, release, begin and finish of the recycle. With waiters: a claim "
    "enters the line, a lease is released, and its pod goes to the line's head. The burst goes through one worker's "
    f"connections (redis-py, 16 of them), on {SMALL:,} warm pods."
)
PROVED = Attestation(tier=RecycleTier.ROOM, checks={"processes": True})
TAG = Tag("0" * 32)


@dataclass
class Timings:
    """What one kind of pool showed at one number of clients."""

    claim_ms: list[float] = field(default_factory=list[float])
    release_ms: list[float] = field(default_factory=list[float])
    wall_s: float = 0.0

    @property
    def both_ms(self) -> list[float]:
        """Claim and release of each cycle together."""
        return [claim + release for claim, release in zip(self.claim_ms, self.release_ms, strict=True)]


Cycles = Callable[[LeanIndex, int, int, Timings], Awaitable[None]]
"""Runs some cycles of one client."""


async def measure(redis_url: str, cycles: int) -> Measured:
    """About `cycles` per row."""
    mark = uuid.uuid4().hex[:8]
    pools = {f"{size:,} pods": (f"{mark}-{size}", _cycles) for size in (SMALL, LARGE)}
    pools[f"{WAITERS:,} waiters"] = (f"{mark}-line", Line().cycles)
    async with await connect(redis_url) as redis:
        await _fill(RedisIndex(redis, "bench", f"{mark}-{SMALL}"), SMALL)
        await _fill(RedisIndex(redis, "bench", f"{mark}-{LARGE}"), LARGE)
        await _fill_line(RedisIndex(redis, "bench", f"{mark}-line"))
        shown: dict[tuple[str, int], Timings] = {}
        for clients in CLIENTS:
            for _ in range(ROUNDS):
                for kind, (pool, act) in pools.items():
                    timings = shown.setdefault((kind, clients), Timings())
                    await _run(redis, redis_url, pool, act, clients, max(1, cycles // clients // ROUNDS), timings)
        burst = await _burst(redis, f"{mark}-burst")
    return _measured(shown, burst)


def _measured(shown: dict[tuple[str, int], Timings], burst: list[float]) -> Measured:
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {"burst_claims": BURST, "burst_p99_ms": quantile(burst, 0.99)}
    for (kind, clients), timings in shown.items():
        rate = len(timings.claim_ms) / timings.wall_s
        row, name = (
            [kind, f"{clients}", f"{rate:.0f}/s"],
            f"{kind.replace(',', '').replace(' ', '_')}_{clients}_clients",
        )
        figures[f"cycles_per_s_{name}"] = rate
        for what, values in (("claim", timings.claim_ms), ("release", timings.release_ms)):
            for told, share in (("p50", 0.5), ("p99", 0.99)):
                row.append(ms(quantile(values, share)))
                figures[f"{what}_{told}_ms_{name}"] = quantile(values, share)
        rows.append(tuple(row))
    small, large = (quantile(shown[f"{size:,} pods", 1].both_ms, 0.5) for size in (SMALL, LARGE))
    figures["claim_and_release_large_over_small"] = large / small
    blank = ("", "", "")
    rows.append((f"{LARGE // SMALL}x the pods, one client", "1", f"{large / small:.2f}x", "", *blank))
    rows.append(
        (f"{BURST} claims at once", f"{BURST}", "", ms(quantile(burst, 0.5)), ms(quantile(burst, 0.99)), "", "")
    )
    header = ("pool", "clients", "cycles", "claim p50", "claim p99", "release p50", "release p99")
    return Measured(NAME, "index alone, by size", SETTING, header, tuple(rows), figures)


async def _run(
    redis: IndexRedis, url: str, pool: str, act: Cycles, clients: int, cycles: int, timings: Timings
) -> None:
    indexes = [LeanIndex(redis, pool, await open_connection(url)) for _ in range(clients)]
    try:
        await indexes[0].lean.load()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, index in enumerate(indexes):
                group.create_task(_awaited(act(index, number, cycles, timings)))
        timings.wall_s += time.perf_counter() - began
    finally:
        for index in indexes:
            index.connection.close()


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _cycles(index: LeanIndex, number: int, cycles: int, timings: Timings) -> None:
    """Each client has a tag of its own, and takes its pod again."""
    tag = Tag(f"{number:032x}")
    for _ in range(cycles):
        request = RequestId(uuid.uuid4().hex)
        question = _request(request, tag, f"bench/{number}")
        began = time.perf_counter()
        claimed = await index.claim(question)
        between = time.perf_counter()
        released = await index.release(request)
        timings.claim_ms.append((between - began) * 1000)
        timings.release_ms.append((time.perf_counter() - between) * 1000)
        if not isinstance(claimed, Claimed) or not isinstance(released, Released):
            raise RuntimeError(f"claimed {claimed}, released {released}")
        await _recycle(index, released.pod)


class Line:
    """A pool whose pods are all held, and whose line stays as long as it is: each claim enters at its end, each release
    serves its head."""

    def __init__(self) -> None:
        self._held: dict[int, RequestId] = {}

    async def cycles(self, index: LeanIndex, number: int, cycles: int, timings: Timings) -> None:
        """Each client goes on from the lease that it served last."""
        held = self._held.get(number, RequestId(f"held-{number}"))
        for _ in range(cycles):
            question = _request(RequestId(uuid.uuid4().hex), TAG, "bench/line")
            began = time.perf_counter()
            waits = await index.claim(question)
            between = time.perf_counter()
            released = await index.release(held)
            timings.claim_ms.append((between - began) * 1000)
            timings.release_ms.append((time.perf_counter() - between) * 1000)
            if not isinstance(waits, Wait) or not isinstance(released, Released):
                raise RuntimeError(f"claimed {waits}, released {released}")
            held = await _recycle(index, released.pod)
        self._held[number] = held


async def _recycle(index: LeanIndex, pod: PodName) -> RequestId:
    """Who has the pod now, or ""."""
    started = await index.begin_recycle(pod)
    if not isinstance(started, RecycleStarted):
        raise RuntimeError(f"recycle: {started}")
    freed = await index.finish_recycle(pod, started.epoch, PROVED, 3600, 1_000_000)
    return freed.request_id if isinstance(freed, HandedTo) else RequestId("")


async def _fill(index: RedisIndex, size: int) -> None:
    """The way in which an index comes to be: from the accounts of its pods."""
    await _build(index, [_account(f"pod-{number:06d}") for number in range(size)])


async def _fill_line(index: RedisIndex) -> None:
    held = [_account(f"pod-{number:06d}", f"held-{number}") for number in range(max(CLIENTS))]
    await _build(index, held)
    for number in range(WAITERS):
        reply = await index.claim(_request(RequestId(f"waiter-{number}"), TAG, "bench/line"))
        if not isinstance(reply, Wait):
            raise RuntimeError(f"a waiter was answered {reply}")


async def _build(index: RedisIndex, pods: list[RebuiltPod]) -> None:
    if not await index.try_rebuild_lock("bench", 60) or not await index.rebuild("bench", pods):
        raise RuntimeError("the index could not be built")
    await index.set_targets(1, len(pods), 0)


def _account(name: str, lease: str = "") -> RebuiltPod:
    return RebuiltPod(
        name=PodName(name),
        uid=PodUid(f"uid-{name}"),
        boot_id=BootId(f"boot-{name}"),
        endpoint=f"unix:/nowhere/{name}",
        image="base",
        state="held" if lease else "clean",
        tag=TAG if lease else "",
        epoch=1 if lease else 0,
        lease=lease,
        hold_s=3600,
    )


async def _burst(redis: IndexRedis, pool: str) -> list[float]:
    """Milliseconds until each of many claims that come at once is answered; three times."""
    index = RedisIndex(redis, "bench", pool)
    await _fill(index, SMALL)
    taken: list[float] = []
    for turn in range(3):
        questions = [
            _request(RequestId(f"burst-{turn}-{number}"), Tag(f"{number:032x}"), f"bench/{number % 20}")
            for number in range(BURST)
        ]
        began = time.perf_counter()

        async def claim(question: ClaimRequest, began: float = began) -> float:
            reply = await index.claim(question)
            if not isinstance(reply, Claimed):
                raise RuntimeError(f"claimed {reply}")
            return (time.perf_counter() - began) * 1000

        taken += await asyncio.gather(*(claim(question) for question in questions))
    return taken


def _request(request: RequestId, tag: Tag, caller: str) -> ClaimRequest:
    return ClaimRequest(
        request_id=request,
        tag=tag,
        caller=caller,
        image="base",
        hold_s=3600,
        wait_timeout_s=3600,
        holder=Holder(namespace="bench", workflow_id="bench", run_id="bench"),
        new_pod=PodName(f"new-{request}"),
    )
