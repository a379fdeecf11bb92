"""Claims at a given rate, many at once, and how soon who waits is woken."""

import asyncio
import time
import uuid

from figures import Bound, Measured, ms, quantile
from load_jobs import LINE_TAG, PROVED, Job, Timings, request
from load_processes import Herd, herd
from machine_pace import Pace, watched
from record_pools import fill

from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.contract import HandedTo, RecycleStarted, Released
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Wait
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId

NAME = "index_load"
RATES = (500, 1_000, 2_000)
PROCESSES = 2
PODS = 1_000
BURST, BURSTS = 300, 10
BOUNDS = (
    Bound("claim_p99_ms_offer_2000_per_s", 20),
    Bound("answered_per_s_offer_2000_per_s", 0.98 * 2_000, "/s", at_least=True),
    Bound(f"burst_worker_p99_ms_{PROCESSES}_processes", 100),
    Bound("wake_p50_ms_finish_recycle", 5),
    Bound("wake_p50_ms_pod_gone", 5),
)
"""An open loop's last answers come after its last offer: a little less than what was offered is all of it."""
SETTING = (
    "Real: Redis and the index's scripts; pods are records only. An open loop: each claim has its time, a release"
    f" follows its answer, and latency counts from the scheduled time, from {PROCESSES} processes. Nothing: as "
    "many calls that run no script, the same way. With recycle: begin and finish of it follow each release, so "
    "that the index runs four scripts a claim. Redis's CPU is its own account, as a share of one core and per "
    "script. Claims at once, on warm pods: as workers make them (redis-py, 16 open connections each), from one "
    "process and from all, and on a bare connection each. A wake: from the call that frees the pod, to the "
    "blocked worker's answer (redis-py, one process for both). Steady p99: without what fell into a dip of the "
    "machine, or within 100 ms after one, as a process beside it saw them; steady: the share that is left."
)


async def measure(redis_url: str, seconds: float) -> Measured:
    """Each rate for so long."""
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
    async with await connect(redis_url) as redis, herd(PROCESSES) as clients_of:
        for act, what in (("offer_ping", "nothing"), ("offer", "claim, release"), ("offer_all", "with recycle")):
            for rate in RATES:
                job = Job(redis_url, f"{uuid.uuid4().hex[:8]}-{act}", act, 0, PROCESSES, round(rate * seconds), rate)
                row, some = await _offered(clients_of, redis, job)
                rows.append((what, *row))
                figures |= some
        for act, processes in (("burst_worker", 1), ("burst_worker", PROCESSES), ("burst", PROCESSES)):
            row, some = await _at_once(clients_of, redis, redis_url, act, processes)
            rows.append(row)
            figures |= some
        for way in ("finish_recycle", "pod_gone"):
            woken = await _wakes(redis, way, round(100 * seconds))
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                figures[f"wake_{name}_ms_{way}"] = quantile(woken, share)
            rows.append(
                (
                    f"woken by {way}",
                    "",
                    f"{len(woken)}",
                    ms(quantile(woken, 0.5)),
                    ms(quantile(woken, 0.99)),
                    "",
                    "",
                    "",
                )
            )
    header = ("offered", "per second", "answered", "p50", "p99", "steady p99", "steady", "Redis CPU", "a script")
    return Measured(NAME, "index alone, at a given rate", SETTING, header, tuple(rows), figures, BOUNDS)


async def _offered(clients_of: Herd, redis: IndexRedis, job: Job) -> tuple[tuple[str, ...], dict[str, float]]:
    """One rate on a pool of its own: with recycling 1,000 pods do, without each claim uses one up."""
    await fill(RedisIndex(redis, "bench", job.pool), job.cycles + PODS if job.act == "offer" else PODS)
    before = await _cpu(redis)
    async with watched() as pace:
        timings = await clients_of.run(job)
    used_s, scripts = (after - was for after, was in zip(await _cpu(redis), before, strict=True))
    answered = len(timings.claim_ms) / timings.wall_s
    p50, p99 = quantile(timings.claim_ms, 0.5), quantile(timings.claim_ms, 0.99)
    key = f"{job.act}_{job.rate:.0f}_per_s"
    shown, steady = _steady(timings, pace, key)
    busy, each_us = used_s / timings.wall_s, used_s / max(1.0, scripts) * 1e6
    figures = {
        f"answered_per_s_{key}": answered,
        f"claim_p50_ms_{key}": p50,
        f"claim_p99_ms_{key}": p99,
        **steady,
        f"redis_cpu_share_{key}": busy,
        f"redis_cpu_us_per_script_{key}": each_us,
    }
    cost = "" if job.act == "offer_ping" else f"{each_us:.0f} µs"
    return (f"{job.rate:.0f}", f"{answered:.0f}/s", ms(p50), ms(p99), *shown, f"{busy:.0%}", cost), figures


def _steady(timings: Timings, pace: Pace, key: str) -> tuple[tuple[str, str], dict[str, float]]:
    """The p99 of what was due and answered while the machine ran at its pace, and how much of all that was."""
    pairs = zip(timings.due_s, timings.claim_ms, strict=True)
    steady = [taken for due, taken in pairs if pace.is_steady(due, due + taken / 1000)]
    share = len(steady) / len(timings.claim_ms)
    p99 = quantile(steady, 0.99) if steady else float("nan")
    return (ms(p99), f"{share:.0%}"), {f"steady_p99_ms_{key}": p99, f"steady_share_{key}": share}


async def _at_once(
    clients_of: Herd, redis: IndexRedis, url: str, act: str, processes: int
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Many claims at the same moment, some times over."""
    pool = f"{uuid.uuid4().hex[:8]}-{act}"
    await fill(RedisIndex(redis, "bench", pool), BURST * BURSTS)
    taken = Timings()
    async with watched() as pace:
        for turn in range(BURSTS):
            once = await clients_of.run(Job(url, pool, act, turn * BURST, BURST, 1), processes)
            taken.claim_ms += once.claim_ms
            taken.due_s += once.due_s
    p50, p99 = quantile(taken.claim_ms, 0.5), quantile(taken.claim_ms, 0.99)
    who = f"{processes} {'worker' if act == 'burst_worker' else 'bare'}"
    key = f"{act}_{processes}_processes"
    shown, steady = _steady(taken, pace, key)
    figures = {f"{act}_p50_ms_{processes}_processes": p50, f"{act}_p99_ms_{processes}_processes": p99, **steady}
    return (f"{BURST} at once, {who}", "", f"{len(taken.claim_ms)}", ms(p50), ms(p99), *shown, "", ""), figures


async def _cpu(redis: IndexRedis) -> tuple[float, float]:
    """Seconds of CPU that Redis has used, and scripts that it has run by hash."""
    told = await redis.commands.info("all")  # pyright: ignore[reportUnknownMemberType]
    ran = told.get("cmdstat_evalsha", {"calls": 0})
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"]), float(ran["calls"])


async def _wakes(redis: IndexRedis, way: str, times: int) -> list[float]:
    """Milliseconds from the call that serves who waits, to its worker's knowing."""
    index = RedisIndex(redis, "bench", f"{uuid.uuid4().hex[:8]}-wake")
    await fill(index, 1)
    held = RequestId("r0")
    first = await index.claim(request(held, LINE_TAG, "bench"))
    assert isinstance(first, Claimed)
    taken: list[float] = []
    for number in range(1, times + 1):
        waits = RequestId(f"r{number}")
        question = request(waits, LINE_TAG, "bench").model_copy(update={"waker": "worker"})
        assert isinstance(await index.claim(question), Wait)
        blocked = asyncio.create_task(_woken(index))
        await asyncio.sleep(0.002)  # so that it blocks before there is anything to wake it
        began = await (_finish if way == "finish_recycle" else _replace)(index, held, waits)
        taken.append((await blocked - began) * 1000)
        await index.next_wakes("worker", 0)  # a place that became a pod woke it twice
        held = waits
    return taken


async def _woken(index: RedisIndex) -> float:
    """When somebody was."""
    if not await index.next_wakes("worker", 30):
        raise RuntimeError("nobody was woken")
    return time.perf_counter()


async def _finish(index: RedisIndex, held: RequestId, waits: RequestId) -> float:
    """The pod of the same tag goes on to who waits; when that was asked for."""
    released = await index.release(held)
    assert isinstance(released, Released)
    started = await index.begin_recycle(released.pod)
    assert isinstance(started, RecycleStarted)
    began = time.perf_counter()
    freed = await index.finish_recycle(released.pod, started.epoch, PROVED, 3600, 1_000_000)
    assert freed == HandedTo(request_id=waits)
    return began


async def _replace(index: RedisIndex, held: RequestId, waits: RequestId) -> float:
    """The pod goes, and its place is who waits'; when that was said."""
    lease = await index.lease(held)
    assert lease is not None
    began = time.perf_counter()
    await index.pod_gone(PodName(lease.pod), "bench")
    freed = await index.lease(waits)
    assert freed is not None and freed.state == "reserved"
    await index.pod_ready(PodName(freed.pod), PodUid("u"), BootId("b"), "unix:/nowhere", "base")
    return began
