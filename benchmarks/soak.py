"""Drives the index's scripts against the index in plain Python for a million steps, chosen by a seeded generator.

python benchmarks/soak.py [--steps N] [--seed N] [--count FILE]

Every run of some hundred steps has a pool and a seed of its own, and ends with everyone coming to an end. The first
difference stops it, and the seed that it prints brings that run back.
"""

import argparse
import asyncio
import random
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # PYTHONSAFEPATH leaves it out

from fixtures.clocked_index import Clock  # noqa: E402
from fixtures.index_cast import weighed  # noqa: E402
from fixtures.index_pair import Pair  # noqa: E402
from fixtures.index_settling import settle  # noqa: E402
from fixtures.index_world import World  # noqa: E402

from emberpool.pool.index.connection import IndexRedis, connect  # noqa: E402
from emberpool.pool.index.limits import IndexLimits  # noqa: E402
from emberpool.worker.stack.redis_server import RedisServer  # noqa: E402

RUN = 500
"""Steps of one run."""
COMPARE_EVERY = 8
"""Answers are compared at each step, all that is remembered at every so many, and at the end of each run."""
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


def _write(count: Path | None, steps: int) -> None:
    if count is not None:
        count.write_text(f"{steps}\n")


async def soak(steps: int, seed: int, count: Path | None) -> int:
    """Run after run until there have been `steps`; 1 if one failed."""
    began, done, said = time.monotonic(), Done(), time.monotonic()
    async with RedisServer(None) as server, await connect(server.url) as redis:
        while done.steps < steps:
            own = seed + done.runs
            try:
                await run(redis, own, min(RUN, steps - done.steps), done)
            except Exception as error:
                print(f"run of seed {own} after {done.steps:,} steps: {type(error).__name__}: {error}", file=sys.stderr)
                return 1
            if time.monotonic() - said > 10:
                said = time.monotonic()
                print(done.told(seed, said - began), flush=True)
            _write(count, done.steps)
    print(done.told(seed, time.monotonic() - began))
    for answer, number in sorted(done.answers.items()):
        print(f"  {answer:40} {number:>10,}")
    return 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Drive the index's scripts against the index in plain Python.")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, help="the first run's; fresh by default")
    parser.add_argument("--count", type=Path, metavar="FILE", help="where to write how many steps have been run")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    return asyncio.run(soak(given.steps, seed, given.count))


if __name__ == "__main__":
    sys.exit(main())
