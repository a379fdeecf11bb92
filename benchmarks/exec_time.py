"""What a command costs over the same process started directly, and whether many at once all come back."""

import asyncio
import subprocess
import time
import uuid
from contextlib import AsyncExitStack

from figures import Bound, Measured, ms, quantile
from recycle_time import wait_ready

from emberpool.activities.pools import Pool
from emberpool.pool.client.emberd_client import LeaseProof
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command
from emberpool.pool.model.ids import ExecutionId, RequestId, Tag
from emberpool.worker.connections import open_pools
from emberpool.worker.settings import Settings

NAME = "exec"
ARGV = ("/bin/true",)
AT_ONCE_PER_POD = 10
BOUNDS = (Bound("over_direct_p50_ms", 1.5),)
TAG = Tag("e" * 32)
SETTING = (
    "Real: local pods with their emberds, /bin/true. Direct: subprocess.run of the same with three pipes, in the "
    "process that asks; by turns with a command through emberd, timed by the caller. At once: all commands sent "
    "together (closed loop); their times hold the wait for a processor."
)


async def measure(settings: Settings, rounds: int, pods: int) -> Measured:
    """`rounds` commands by turns in one pod, then 10 at once in each of `pods`."""
    async with AsyncExitStack() as stack:
        pool = (await open_pools(settings, stack))[0]
        first = await _lease(pool, stack)
        for _ in range(10):
            await _run(pool, *first)
        direct: list[float] = []
        through: list[float] = []
        for _ in range(rounds):
            direct.append(_run_directly())
            through.append(await _run(pool, *first))
            await asyncio.sleep(0.01)  # a caller's own work between two commands
        leases = [first]
        while len(leases) < pods:
            more = min(8, pods - len(leases))
            leases += await asyncio.gather(*(_lease(pool, stack) for _ in range(more)))
        commands = [_run(pool, *lease) for lease in leases for _ in range(AT_ONCE_PER_POD)]
        together = await asyncio.gather(*commands)
    return report(direct, through, list(together), pods)


async def _lease(pool: Pool, stack: AsyncExitStack) -> tuple[PodAddress, LeaseProof]:
    name = pool.pod_name(uuid.uuid4().hex)
    await pool.provider.create(name, pool.profile.base_image)
    stack.push_async_callback(pool.provider.delete, name)
    return await wait_ready(pool, name), LeaseProof(RequestId(uuid.uuid4().hex), 1, TAG, 60.0)


def _run_directly() -> float:
    began = time.perf_counter()
    subprocess.run(ARGV, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1000


async def _run(pool: Pool, pod: PodAddress, proof: LeaseProof) -> float:
    """Milliseconds of one command. Raises if it did not end with status 0."""
    began = time.perf_counter()
    command = Command(argv=ARGV, time_limit_s=120)
    (await pool.client.run(pod, proof, ExecutionId(uuid.uuid4().hex), command, poll_s=60)).check()
    return (time.perf_counter() - began) * 1000


def report(direct: list[float], through: list[float], together: list[float], pods: int) -> Measured:
    """The table and the figures."""
    rows = {"directly": direct, "through emberd": through, f"{len(together)} at once, {pods} pods": together}
    figures = {
        "direct_p50_ms": quantile(direct, 0.5),
        "emberd_p50_ms": quantile(through, 0.5),
        "over_direct_p50_ms": quantile(through, 0.5) - quantile(direct, 0.5),
        "at_once_p99_ms": quantile(together, 0.99),
        "at_once_commands": float(len(together)),
    }
    table = tuple(
        (name, *(ms(quantile(times, share)) for share in (0.1, 0.5, 0.9, 0.99))) for name, times in rows.items()
    )
    title = "a trivial command, started directly and through emberd"
    return Measured(NAME, title, SETTING, ("started", "p10", "p50", "p90", "p99"), table, figures, BOUNDS)
