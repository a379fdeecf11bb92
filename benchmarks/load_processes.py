"""Several client processes that do their share of one load at the same time, as workers do in real life."""

import asyncio
import dataclasses
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from load_jobs import Job, Timings

LONGEST_ANSWER = 64 * 1024 * 1024
"""Bytes: timings of one job as JSON."""


class Herd:
    """Client processes that are up, each with an interpreter of its own."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    async def run(self, job: Job, processes: int | None = None) -> Timings:
        """Share the job's clients, cycles and rate out between the processes (or fewer); their timings together.

        A closed loop's `cycles` are per client, an open one's are shared.
        """
        count = min(processes or len(self._processes), len(self._processes), job.clients)
        shares = [_share(job, number, count) for number in range(count)]
        told = await asyncio.gather(*(_ask(*pair) for pair in zip(self._processes, shares, strict=False)))
        return Timings(
            claim_ms=[value for one in told for value in one.claim_ms],
            release_ms=[value for one in told for value in one.release_ms],
            due_s=[value for one in told for value in one.due_s],
            wall_s=max(one.wall_s for one in told),
        )


def _share(job: Job, number: int, count: int) -> Job:
    is_open = job.rate > 0
    return dataclasses.replace(
        job,
        first=job.first + number,
        step=count,
        clients=len(range(number, job.clients, count)),
        cycles=job.cycles // count if is_open else job.cycles,
        rate=job.rate / count,
    )


async def _ask(process: Process, job: Job) -> Timings:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(dataclasses.asdict(job)).encode() + b"\n")
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a client process ended")
    return Timings(**json.loads(line))


@asynccontextmanager
async def herd(count: int) -> AsyncGenerator[Herd]:
    """So many client processes, ended with their stdin."""
    program = str(Path(__file__).with_name("load_jobs.py"))
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, program, stdin=PIPE, stdout=PIPE, limit=LONGEST_ANSWER)
        for _ in range(count)
    ]
    try:
        yield Herd(processes)
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        await asyncio.gather(*(process.wait() for process in processes))
