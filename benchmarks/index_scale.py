"""What the size of a pool and of its line costs the index, at 1, 16 and 256 clients."""

import uuid

from figures import Bound, Measured, ms, quantile
from load_jobs import LINE_TAG, Job, Timings, request
from load_processes import herd
from record_pools import account, build, fill

from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Wait
from emberpool.pool.model.ids import RequestId

NAME = "index_scale"
SMALL, LARGE, WAITERS = 1_000, 100_000, 10_000
CLIENTS = (1, 16, 256)
NEW_CALLERS = 500
"""Each uses up a fresh pod: fewer than the small pool has, so that both have some to the end."""
BOUNDS = (Bound("claim_and_release_large_over_small", 1.5, "x"), Bound("new_callers_large_over_small", 1.5, "x"))
PROCESSES = 2
ROUNDS = 5
"""The pools are measured by turns, so that what else the machine does falls on all of them."""
SETTING = (
    "Real: Redis and the index's scripts; pods are records only. A closed loop per client, each with a bare connection "
    f"of its own, from {PROCESSES} processes (workers are many). A cycle: claim, release, begin and finish of the "
    "recycle. "
    "New callers: one client, each claim of a caller that was never there, which takes a pod that nobody has used; "
    "else each client takes its own pod again. "
    "With waiters: a claim enters the line, a lease is released, and its pod goes to the line's head."
)


async def measure(redis_url: str, cycles: int) -> Measured:
    """About `cycles` per row."""
    mark = uuid.uuid4().hex[:8]
    pools = {f"{size:,} pods": (f"{mark}-{size}", "cycle") for size in (SMALL, LARGE)}
    pools[f"{WAITERS:,} waiters"] = (f"{mark}-line", "line")
    shown: dict[tuple[str, int], Timings] = {}
    async with await connect(redis_url) as redis, herd(PROCESSES) as clients_of:
        await fill(RedisIndex(redis, "bench", f"{mark}-{SMALL}"), SMALL)
        await fill(RedisIndex(redis, "bench", f"{mark}-{LARGE}"), LARGE)
        await _fill_line(RedisIndex(redis, "bench", f"{mark}-line"))
        new = max(1, min(cycles, NEW_CALLERS) // ROUNDS)
        for _ in range(ROUNDS):
            for size in (SMALL, LARGE):
                job = Job(redis_url, f"{mark}-{size}", "cycle_new", 0, 1, new)
                _add(shown.setdefault((f"{size:,} pods, new callers", 1), Timings()), await clients_of.run(job))
        for clients in CLIENTS:
            for _ in range(ROUNDS):
                for kind, (pool, act) in pools.items():
                    job = Job(redis_url, pool, act, 0, clients, max(1, cycles // clients // ROUNDS))
                    _add(shown.setdefault((kind, clients), Timings()), await clients_of.run(job, PROCESSES))
    return _measured(shown)


def _add(all_: Timings, some: Timings) -> None:
    all_.claim_ms += some.claim_ms
    all_.release_ms += some.release_ms
    all_.wall_s += some.wall_s


def _measured(shown: dict[tuple[str, int], Timings]) -> Measured:
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
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
    blank = ("", "", "", "")
    for kind, name in (("", "claim_and_release"), (", new callers", "new_callers")):
        small, large = (_both(shown[f"{size:,} pods{kind}", 1]) for size in (SMALL, LARGE))
        figures[f"{name}_large_over_small"] = large / small
        rows.append((f"{LARGE // SMALL}x the pods, one client{kind}", "1", f"{large / small:.2f}x", *blank))
    header = ("pool", "clients", "cycles", "claim p50", "claim p99", "release p50", "release p99")
    return Measured(NAME, "index alone, by size", SETTING, header, tuple(rows), figures, BOUNDS)


def _both(timings: Timings) -> float:
    """Median of claim and release of each cycle together, ms."""
    return quantile([sum(pair) for pair in zip(timings.claim_ms, timings.release_ms, strict=True)], 0.5)


async def _fill_line(index: RedisIndex) -> None:
    await build(index, [account(f"pod-{number:06d}", f"held-{number}") for number in range(max(CLIENTS))])
    for number in range(WAITERS):
        reply = await index.claim(request(RequestId(f"waiter-{number}"), LINE_TAG, "bench/line"))
        if not isinstance(reply, Wait):
            raise RuntimeError(f"a waiter was answered {reply}")
