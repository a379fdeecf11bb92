"""How fast the index alone claims and takes back, in a pool of 1,000 pods."""

import asyncio
import time
import uuid
from dataclasses import dataclass, field

from figures import Bound, Measured, ms, quantile

from emberpool.pool.index.connection import connect
from emberpool.pool.index.contract import ClaimRequest, RebuiltPod, RecycleStarted, Released
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Holder
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag
from emberpool.pool.model.recycle import Attestation, RecycleTier

NAME = "index"
PODS = 1000
BOUNDS = (Bound("claim_p50_ms_1_clients", 1),)
SETTING = (
    "Real: Redis and the index's scripts; pods are records only. A closed loop per client, each with a connection of "
    "its own, all in one Python process, which is the bottleneck at 16. A cycle: claim, release, begin and finish of "
    "the recycle."
)
PROVED = Attestation(tier=RecycleTier.ROOM, checks={"processes": True})


@dataclass
class Timings:
    """Milliseconds of single calls."""

    claim_ms: list[float] = field(default_factory=list[float])
    release_ms: list[float] = field(default_factory=list[float])


async def measure(redis_url: str, cycles: int) -> Measured:
    """`cycles` in all, by one client and then by sixteen."""
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {"pods": PODS}
    for clients in (1, 16):
        timings, wall_s = await _run(redis_url, clients, cycles // clients)
        rate = len(timings.claim_ms) / wall_s
        row = [f"{clients}", f"{rate:.0f}/s"]
        figures[f"cycles_per_s_{clients}_clients"] = rate
        for name, values in (("claim", timings.claim_ms), ("release", timings.release_ms)):
            for told, share in (("p50", 0.5), ("p99", 0.99)):
                row.append(ms(quantile(values, share)))
                figures[f"{name}_{told}_ms_{clients}_clients"] = quantile(values, share)
        rows.append(tuple(row))
    header = ("clients", "cycles", "claim p50", "claim p99", "release p50", "release p99")
    return Measured(NAME, f"index alone, {PODS} pods", SETTING, header, tuple(rows), figures, BOUNDS)


async def _run(redis_url: str, clients: int, cycles: int) -> tuple[Timings, float]:
    pool = f"bench-{uuid.uuid4().hex[:8]}"
    timings = Timings()
    redises = [await connect(redis_url) for _ in range(clients)]
    try:
        indexes = [RedisIndex(redis, "bench", pool) for redis in redises]
        await _fill(indexes[0])
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, index in enumerate(indexes):
                group.create_task(_client(index, number, cycles, timings))
        wall_s = time.perf_counter() - began
        await asyncio.gather(*(index.aclose() for index in indexes))
    finally:
        await asyncio.gather(*(redis.aclose() for redis in redises))
    return timings, wall_s


async def _fill(index: RedisIndex) -> None:
    # The way in which an index comes to be: from the accounts of its pods.
    pods = [
        RebuiltPod(
            name=PodName(f"pod-{number:04d}"),
            uid=PodUid(f"uid-{number}"),
            boot_id=BootId(f"boot-{number}"),
            endpoint=f"unix:/nowhere/{number}",
            image="base",
            state="clean",
            tag="",
            epoch=0,
            lease="",
            hold_s=0,
        )
        for number in range(PODS)
    ]
    if not await index.try_rebuild_lock("bench", 60) or not await index.rebuild("bench", pods):
        raise RuntimeError("the index could not be built")
    await index.set_targets(1, PODS, PODS)


async def _client(index: RedisIndex, number: int, cycles: int, timings: Timings) -> None:
    tag = Tag(f"{number:032x}")
    for _ in range(cycles):
        request = RequestId(uuid.uuid4().hex)
        began = time.perf_counter()
        claimed = await index.claim(_request(request, tag, number))
        between = time.perf_counter()
        released = await index.release(request)
        ended = time.perf_counter()
        timings.claim_ms.append((between - began) * 1000)
        timings.release_ms.append((ended - between) * 1000)
        if not isinstance(claimed, Claimed) or not isinstance(released, Released):
            raise RuntimeError(f"claimed {claimed}, released {released}")
        started = await index.begin_recycle(released.pod)
        if not isinstance(started, RecycleStarted):
            raise RuntimeError(f"recycle: {started}")
        await index.finish_recycle(released.pod, started.epoch, PROVED, 3600, 1_000_000)


def _request(request: RequestId, tag: Tag, number: int) -> ClaimRequest:
    return ClaimRequest(
        request_id=request,
        tag=tag,
        caller=f"bench/{number}",
        image="base",
        hold_s=60,
        wait_timeout_s=60,
        holder=Holder(namespace="bench", workflow_id="bench", run_id="bench"),
        new_pod=PodName(f"new-{request}"),
    )
