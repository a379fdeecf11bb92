"""Drives the index's scripts against the index in plain Python for a million steps, chosen by a seeded generator.

python benchmarks/soak.py [--steps N] [--seed N] [--count FILE] [--processes N]

Every run of some hundred steps has a pool and a seed of its own, and ends with everyone coming to an end. The first
difference stops it, and the seed that it prints brings that run back. Each process has a server of its own, and waits
for it without an event loop's detours.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from threading import Event
from typing import Any, cast

import redis as sync_redis

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # PYTHONSAFEPATH leaves it out

from fixtures.clocked_index import Clock  # noqa: E402
from fixtures.index_cast import weighed  # noqa: E402
from fixtures.index_pair import Pair  # noqa: E402
from fixtures.index_settling import settle  # noqa: E402
from fixtures.index_world import World  # noqa: E402

from emberpool.pool.index.connection import IndexRedis  # noqa: E402
from emberpool.pool.index.limits import IndexLimits  # noqa: E402
from emberpool.worker.stack.redis_server import RedisServer  # noqa: E402

RUN = 500
"""Steps of one run."""
COMPARE_EVERY = 16
"""Answers are compared at each step, all that is remembered at every so many, and at the end of each run."""
SAY_EVERY_S = 10.0
LIMITS = (
    IndexLimits(),
    IndexLimits(lead=1, look=2, batch=2, residency_ms=0, hand_over_ms=300),
    IndexLimits(stuck_ms=1_000, caller_ms=2_000, tombstone_ms=5_000, wake_ms=1_000),
)
"""Runs take these by turns: rare ways become common under little patience."""


@dataclass
class Done:
    """What a soak came to."""

    steps: int = 0
    runs: int = 0
    transitions: int = 0
    accepted: int = 0
    """Calls that an emberd let in."""
    answers: Counter[str] = field(default_factory=Counter[str])

    def told(self, seed: int, seconds: float) -> str:
        """One line."""
        return (
            f"{self.steps:,} steps in {self.runs:,} runs from seed {seed}, {self.transitions:,} transitions on scripts "
            f"and model, {self.accepted:,} calls let in, no difference, nothing broken; {seconds:.0f} s"
        )


class _AtOnce:
    """redis-py's commands without an event loop: an awaited command has run when it is called."""

    def __init__(self, client: sync_redis.Redis) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        command = getattr(self._client, name)

        async def run_it(*arguments: Any, **named: Any) -> Any:
            return command(*arguments, **named)

        return run_it


class DirectRedis(IndexRedis):
    """Redis as the index uses it, over one connection that blocks: nothing else is to be done meanwhile."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        client = sync_redis.Redis.from_url(url, decode_responses=True)  # pyright: ignore[reportUnknownMemberType]
        self._at_once = _AtOnce(client)

    @property
    def commands(self) -> Any:
        """For every command."""
        return self._at_once


async def run(redis: IndexRedis, seed: int, steps: int, done: Done) -> None:
    """One pool's life.

    Raises:
        AssertionError: says what differs or what was broken.
    """
    chance, words = random.Random(seed), weighed()
    pair = Pair(redis, f"soak-{uuid.uuid4().hex[:12]}", LIMITS[seed % len(LIMITS)], Clock())
    world = World(pair)
    await world.act("rebuild", 1, 0)
    for number in range(steps):
        await world.act(chance.choice(words), chance.randrange(10), chance.randrange(10))
        if number % COMPARE_EVERY == 0:
            await pair.compare()
    await settle(world)
    await pair.forget()
    done.steps, done.runs = done.steps + steps, done.runs + 1
    done.transitions += pair.transitions
    done.accepted += world.accepted
    done.answers.update(pair.answers)


Told = tuple[int, Done, str]
"""Which process, all that it has done so far, and its failure or ""."""


async def _soak(number: int, steps: int, seed: int, tell: Callable[[Told], None], to_end: Event) -> None:
    """Run after run until there have been `steps`, one failed, or it is to end."""
    done, said = Done(), time.monotonic()
    async with RedisServer(None) as server, DirectRedis(server.url) as redis:
        while done.steps < steps and not to_end.is_set():
            own = seed + done.runs
            try:
                await run(redis, own, min(RUN, steps - done.steps), done)
            except Exception as error:
                tell((number, done, f"run of seed {own} after {done.steps:,} steps: {type(error).__name__}: {error}"))
                return
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                tell((number, done, ""))
    tell((number, done, ""))


def _end(signum: int, _: object) -> None:
    """Leave by way of everything that wants to be closed."""
    raise SystemExit(128 + signum)


def _process(number: int, steps: int, seed: int, told: "Queue[Told]") -> None:
    # Ctrl-C reaches every process of a terminal; the first one says when the others end, and their servers with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A flag rather than an exception: Python drops one that is raised while it clears away a weak reference.
    to_end = Event()

    def end(signum: int, frame: object) -> None:
        to_end.set()

    signal.signal(signal.SIGTERM, end)
    asyncio.run(_soak(number, steps, seed, told.put, to_end))
    if to_end.is_set():
        sys.exit(128 + signal.SIGTERM)


def _sum(parts: list[Done]) -> Done:
    total = Done()
    for part in parts:
        total.steps, total.runs = total.steps + part.steps, total.runs + part.runs
        total.transitions += part.transitions
        total.accepted += part.accepted
        total.answers.update(part.answers)
    return total


def soak(steps: int, seed: int, count: Path | None, processes: int) -> int:
    """Share the steps out; 1 if a run failed or a process ended too soon."""
    began, said = time.monotonic(), 0.0
    context = multiprocessing.get_context("spawn")
    told = cast("Queue[Told]", context.Queue())
    shares = [len(range(number, steps, processes)) for number in range(processes)]
    running = [
        context.Process(target=_process, args=(number, share, seed + number * 1_000_000, told), daemon=False)
        for number, share in enumerate(shares)
    ]
    for process in running:
        process.start()
    parts, failure = [Done() for _ in running], ""
    try:
        while not failure and any(part.steps < share for part, share in zip(parts, shares, strict=True)):
            number, parts[number], failure = _next(told, running)
            if count is not None:
                count.write_text(f"{_sum(parts).steps}\n")
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                print(_sum(parts).told(seed, said - began), flush=True)
    except BaseException:
        failure = "interrupted"
        raise
    finally:
        for process in running:
            if failure:
                process.terminate()
            process.join()
    if failure:
        print(failure, file=sys.stderr)
        return 1
    total = _sum(parts)
    print(total.told(seed, time.monotonic() - began))
    for answer, number in sorted(total.answers.items()):
        print(f"  {answer:40} {number:>10,}")
    return 0


def _next(told: "Queue[Told]", running: list[Any]) -> Told:
    while True:
        try:
            return told.get(timeout=1)
        except Empty:
            dead = [number for number, process in enumerate(running) if process.exitcode]
            if dead:
                return dead[0], Done(), f"process {dead[0]} ended with {running[dead[0]].exitcode}"


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Drive the index's scripts against the index in plain Python.")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, help="the first run's; fresh by default")
    parser.add_argument("--count", type=Path, metavar="FILE", help="where to write how many steps have been run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="one per core by default")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, _end)
    try:
        return soak(given.steps, seed, given.count, max(1, min(given.processes, given.steps)))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
