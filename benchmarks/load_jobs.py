"""What one client process of a measurement does: a number of clients on bare connections, in a closed or an open loop.

Jobs come as JSON, a line each, on stdin; their timings go back the same way. Run by load_processes.py.
"""

import asyncio
import dataclasses
import gc
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

from lean_caller import LeanIndex, open_connection  # noqa: E402

from emberpool.pool.index.connection import connect  # noqa: E402
from emberpool.pool.index.contract import ClaimRequest, HandedTo, RecycleStarted, Released  # noqa: E402
from emberpool.pool.index.redis_index import RedisIndex  # noqa: E402
from emberpool.pool.model.claim import Claimed, Holder, Wait  # noqa: E402
from emberpool.pool.model.ids import PodName, RequestId, Tag  # noqa: E402
from emberpool.pool.model.recycle import Attestation, RecycleTier  # noqa: E402

PROVED = Attestation(tier=RecycleTier.ROOM, checks={"processes": True})
LINE_TAG = Tag("0" * 32)
OPEN_CONNECTIONS = 32
"""What one process has for an open loop: more would only wait within the server."""


@dataclass(frozen=True)
class Job:
    """What one process is to do in one pool."""

    url: str
    pool: str
    act: str
    """`cycle`: claim, release, recycle. `cycle_new`: the same, each by a new caller.
    `line`: enter the line, release what is held, serve the line. `offer`: claim
    and release at a given rate, whether or not the last ones were answered; `offer_all`: and recycle; `offer_ping`: two
    calls that do nothing. `burst`: one claim of each client, all at once; `burst_worker`: the same through the
    connections that a worker has."""
    first: int
    """The number of the first client; each further one has a number higher by `step`, so that all processes differ."""
    clients: int
    cycles: int
    rate: float = 0.0
    """Offered by this process, a second."""
    step: int = 1


@dataclass
class Timings:
    """What a job showed."""

    claim_ms: list[float] = field(default_factory=list[float])
    """From when it was sent, or should have been, to its answer."""
    release_ms: list[float] = field(default_factory=list[float])
    due_s: list[float] = field(default_factory=list[float])
    """When each of those was sent, or should have been, on the monotonic clock."""
    wall_s: float = 0.0

    def add(self, due_s: float, answered_s: float) -> None:
        """A claim that was answered."""
        self.due_s.append(due_s)
        self.claim_ms.append((answered_s - due_s) * 1000)


def request(request_id: RequestId, tag: Tag, caller: str) -> ClaimRequest:
    """A claim as a worker makes it."""
    return ClaimRequest(
        request_id=request_id,
        tag=tag,
        caller=caller,
        image="base",
        hold_s=3600,
        wait_timeout_s=3600,
        holder=Holder(namespace="bench", workflow_id="bench", run_id="bench"),
        new_pod=PodName(f"new-{request_id}"),
    )


def tag_of(number: int) -> Tag:
    """A client's own."""
    return Tag(f"{number:032x}")


async def recycle(index: LeanIndex, pod: PodName) -> RequestId:
    """Reset a pod; who has it now, or ""."""
    started = await index.begin_recycle(pod)
    if not isinstance(started, RecycleStarted):
        raise RuntimeError(f"recycle: {started}")
    freed = await index.finish_recycle(pod, started.epoch, PROVED, 3600, 1_000_000)
    return freed.request_id if isinstance(freed, HandedTo) else RequestId("")


async def _claim_and_release(index: LeanIndex, tag: Tag, caller: str, began: float, timings: Timings) -> PodName:
    """The pod that was held for a moment, dirty now."""
    request_id = RequestId(uuid.uuid4().hex)
    claimed = await index.claim(request(request_id, tag, caller))
    between = time.perf_counter()
    released = await index.release(request_id)
    timings.add(began, between)
    timings.release_ms.append((time.perf_counter() - between) * 1000)
    if not isinstance(claimed, Claimed) or not isinstance(released, Released):
        raise RuntimeError(f"claimed {claimed}, released {released}")
    return released.pod


async def _ping_twice(index: LeanIndex, began: float, timings: Timings) -> None:
    """The same path and as many calls, without a script."""
    await index.connection.ask(["PING"])
    between = time.perf_counter()
    await index.connection.ask(["PING"])
    timings.add(began, between)


async def _cycle(index: LeanIndex, number: int, job: Job, timings: Timings) -> None:
    """Each client has a tag of its own, and takes its pod again."""
    for _ in range(job.cycles):
        began = time.perf_counter()
        await recycle(index, await _claim_and_release(index, tag_of(number), f"bench/{number}", began, timings))


async def _cycle_new(index: LeanIndex, number: int, job: Job, timings: Timings) -> None:
    """Each claim has a new caller, and takes a pod that nobody has used."""
    for _ in range(job.cycles):
        caller = uuid.uuid4().hex
        began = time.perf_counter()
        await recycle(index, await _claim_and_release(index, Tag(caller), f"bench/{caller}", began, timings))


class _Line:
    """A pool whose pods are all held, and whose line stays as long as it is: each claim enters at its end, each release
    serves its head."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], RequestId] = {}

    async def act(self, index: LeanIndex, number: int, job: Job, timings: Timings) -> None:
        """Each client goes on from the lease that it served last."""
        held = self._held.get((job.pool, number), RequestId(f"held-{number}"))
        for _ in range(job.cycles):
            question = request(RequestId(uuid.uuid4().hex), LINE_TAG, "bench/line")
            began = time.perf_counter()
            waits = await index.claim(question)
            between = time.perf_counter()
            released = await index.release(held)
            timings.add(began, between)
            timings.release_ms.append((time.perf_counter() - between) * 1000)
            if not isinstance(waits, Wait) or not isinstance(released, Released):
                raise RuntimeError(f"claimed {waits}, released {released}")
            held = await recycle(index, released.pod)
        self._held[job.pool, number] = held


async def _burst(index: LeanIndex, number: int, job: Job, timings: Timings) -> None:
    """One claim, which is kept."""
    question = request(RequestId(f"burst-{number}"), tag_of(number), f"bench/{number % 20}")
    began = time.perf_counter()
    claimed = await index.claim(question)
    timings.add(began, time.perf_counter())
    if not isinstance(claimed, Claimed):
        raise RuntimeError(f"claimed {claimed}")


async def _burst_worker(index: RedisIndex, job: Job, timings: Timings) -> None:
    """One claim of each client, all at once, over redis-py and its pool of connections, which a worker has open."""
    await asyncio.gather(*(index.counts() for _ in range(job.clients)))

    async def one(number: int, began: float) -> None:
        claimed = await index.claim(request(RequestId(f"burst-{number}"), tag_of(number), f"bench/{number % 20}"))
        timings.add(began, time.perf_counter())
        if not isinstance(claimed, Claimed):
            raise RuntimeError(f"claimed {claimed}")

    began = time.perf_counter()
    await asyncio.gather(*(one(job.first + place * job.step, began) for place in range(job.clients)))


async def _offer(indexes: list[LeanIndex], job: Job, timings: Timings) -> None:
    """Open loop: each claim has its time, and its latency counts from then, also while it waits for a connection."""
    free: asyncio.Queue[tuple[int, LeanIndex]] = asyncio.Queue()
    for place in enumerate(indexes):
        free.put_nowait(place)

    async def one(number: int, due: float) -> None:
        place, index = await free.get()
        try:
            if job.act == "offer_ping":
                await _ping_twice(index, due, timings)
                return
            # With recycling, tags come back and find their pods clean; without, each takes a pod that nobody has used.
            mine = place if job.act == "offer_all" else number
            tag = tag_of(job.first + mine * job.step)
            pod = await _claim_and_release(index, tag, f"bench/{number % 20}", due, timings)
            if job.act == "offer_all":
                await recycle(index, pod)
        finally:
            free.put_nowait((place, index))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(job.cycles):
            due = began + number / job.rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            group.create_task(one(number, due))


_LINE = _Line()
_CLOSED: dict[str, Callable[[LeanIndex, int, Job, Timings], Awaitable[None]]] = {
    "cycle": _cycle,
    "cycle_new": _cycle_new,
    "line": _LINE.act,
    "burst": _burst,
}


async def run(job: Job) -> Timings:
    """Connect, do it, hang up; only the doing is timed."""
    timings = Timings()
    if job.act == "burst_worker":
        async with await connect(job.url) as redis:
            await _burst_worker(RedisIndex(redis, "bench", job.pool), job, timings)
        return timings
    count = OPEN_CONNECTIONS if job.act.startswith("offer") else job.clients
    async with await connect(job.url) as redis:
        indexes = [LeanIndex(redis, job.pool, await open_connection(job.url)) for _ in range(count)]
        try:
            await indexes[0].lean.load()
            began = time.perf_counter()
            await _do(indexes, job, timings)
            timings.wall_s = time.perf_counter() - began
        finally:
            for index in indexes:
                index.connection.close()
    return timings


async def _do(indexes: list[LeanIndex], job: Job, timings: Timings) -> None:
    if job.act.startswith("offer"):
        await _offer(indexes, job, timings)
        return
    async with asyncio.TaskGroup() as group:
        for place, index in enumerate(indexes):
            group.create_task(_awaited(_CLOSED[job.act](index, job.first + place * job.step, job, timings)))


async def _awaited(work: Awaitable[None]) -> None:
    await work


def main() -> None:
    """Jobs until stdin ends."""
    # What was imported is no garbage: looking through it takes tens of milliseconds of this process, now and then.
    gc.freeze()
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            timings = runner.run(run(Job(**json.loads(line))))
            print(json.dumps(dataclasses.asdict(timings)), flush=True)


if __name__ == "__main__":
    main()
