"""How steadily the machine itself runs: the same small work over and over, beside a measurement.

Virtual machines lose their processors for moments that no account of theirs shows. Then everything takes ten times as
long, so that a worst wait says as much of the neighbours as of what is measured; with this, both can be told.
"""

import asyncio
import json
import os
import sys
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from subprocess import PIPE

WORK = bytes(20_000)
"""Summing it takes a fifth of a millisecond: long against a clock's grain, short against the pause after it."""
PAUSE_S = 0.008
SLOW = 3.0
"""Times the usual: a dip takes five to fifteen times as long."""
SETTLE_S = 0.1
"""How long after a dip what stood still in it, and the machine's coming back, still count as the dip's."""


@dataclass(frozen=True)
class Dip:
    """A time in which the machine ran at a fraction of its pace, on the monotonic clock."""

    began_s: float
    ended_s: float


@dataclass
class Pace:
    """What was seen, once it is over."""

    dips: list[Dip] = field(default_factory=list[Dip])
    """In order, and apart."""

    def is_steady(self, began_s: float, ended_s: float) -> bool:
        """Whether no dip, nor the settling after one, touches this time."""
        first = bisect_left(self.dips, began_s - SETTLE_S, key=lambda dip: dip.ended_s)
        return first == len(self.dips) or self.dips[first].began_s > ended_s


@asynccontextmanager
async def watched() -> AsyncGenerator[Pace]:
    """Watch the machine from a process of its own; the pace is filled in at the end."""
    pace = Pace()
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, stdin=PIPE, stdout=PIPE, limit=64 * 1024 * 1024
    )
    try:
        yield pace
    finally:
        told, _ = await process.communicate(b"")
        samples: list[tuple[float, float]] = json.loads(told)
        usual = median(ended - began for began, ended in samples)
        for began, ended in samples:
            if ended - began > SLOW * usual:
                if pace.dips and began - pace.dips[-1].ended_s < 2 * PAUSE_S:
                    began = pace.dips.pop().began_s  # noqa: PLW2901
                pace.dips.append(Dip(began, ended))


async def _sample() -> list[tuple[float, float]]:
    """Until stdin ends. At a priority above all that is measured, where that is allowed: it is to see the machine, not
    how its processes take turns."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    samples: list[tuple[float, float]] = []
    while not ended.done() or len(samples) < 2:
        began = time.perf_counter()
        sum(WORK)
        samples.append((began, time.perf_counter()))
        await asyncio.sleep(PAUSE_S)
    return samples


if __name__ == "__main__":
    json.dump(asyncio.run(_sample()), sys.stdout)
