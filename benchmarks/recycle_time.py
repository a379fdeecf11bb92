"""How long emberd takes to reset a pod and prove it, after a job that wrote nothing and after one that wrote much."""

import asyncio
import time
import uuid
from contextlib import AsyncExitStack

from figures import Bound, Measured, ms, quantile

from emberpool.activities.pools import Pool
from emberpool.pool.client.emberd_client import LeaseProof
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command
from emberpool.pool.model.ids import ExecutionId, PodName, RequestId, Tag
from emberpool.pool.model.pod import Phase
from emberpool.worker.connections import open_pools
from emberpool.worker.settings import Settings

NAME = "recycle"
FILES = 20_000
BOUNDS = (Bound("after_nothing_p50_ms", 10), Bound("after_files_p50_ms", 25))
TAG = Tag("b" * 32)
SETTING = (
    "Real: a local pod with its emberd. Timed by the caller: one signed request over a unix socket, from sending to "
    "the attested answer; the fence before it is left out. Written files lie in folders of 1,000."
)
_WRITER = f"""
import os
for number in range({FILES}):
    folder = f"/work/many/{{number // 1000}}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{{folder}}/{{number}}", "w") as file:
        file.write("x" * 100)
"""
JOBS = {
    "nothing": Command(argv=("true",)),
    f"{FILES} files": Command(argv=("python3", "-c", _WRITER), time_limit_s=120),
}


async def measure(settings: Settings, rounds: int) -> Measured:
    """`rounds` recycles after each kind of job, by turns, in one pod."""
    times: dict[str, list[float]] = {name: [] for name in JOBS}
    async with AsyncExitStack() as stack:
        pool = (await open_pools(settings, stack))[0]
        name = pool.pod_name(uuid.uuid4().hex)
        await pool.provider.create(name, pool.profile.base_image)
        stack.push_async_callback(pool.provider.delete, name)
        pod = await wait_ready(pool, name)
        for number in range(rounds):
            for index, (job, command) in enumerate(JOBS.items()):
                epoch = 1 + 4 * (2 * number + index)
                times[job].append(await _cycle(pool, pod, command, epoch))
    return report(times)


async def wait_ready(pool: Pool, name: PodName) -> PodAddress:
    """The pod's address once it serves. Raises RuntimeError if it does not."""
    facts = await pool.provider.wait_ready(name, 60)
    if facts.phase is not Phase.READY:
        raise RuntimeError(f"the pod did not start: {facts.reason}")
    state = await pool.client.state(name, facts.endpoint)
    return PodAddress(name=name, uid=facts.uid, boot_id=state.boot_id, endpoint=facts.endpoint)


async def _cycle(pool: Pool, pod: PodAddress, command: Command, epoch: int) -> float:
    """One job and its recycle; milliseconds of the recycle."""
    proof = LeaseProof(RequestId(uuid.uuid4().hex), epoch, TAG, 60.0)
    result = await pool.client.run(pod, proof, ExecutionId(uuid.uuid4().hex), command, poll_s=5)
    result.check()
    await pool.client.fence(pod, epoch + 1)
    began = time.perf_counter()
    attestation = await pool.client.recycle(pod, epoch + 1)
    took = (time.perf_counter() - began) * 1000
    if not attestation.holds:
        raise RuntimeError(f"not attested: {attestation}")
    # A dropped layer is deleted behind; the next job waits until a person's would come, so that rounds do not pile up.
    await asyncio.sleep(0.2)
    return took


def report(times: dict[str, list[float]]) -> Measured:
    """Quantiles by job."""
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
    for job, values in times.items():
        rows.append((job, f"{len(values)}", *(ms(quantile(values, share)) for share in (0.5, 0.9, 1.0))))
        word = "files" if job != "nothing" else "nothing"
        figures |= {f"after_{word}_p50_ms": quantile(values, 0.5), f"after_{word}_max_ms": max(values)}
    return Measured(
        NAME, "recycle of a pod", SETTING, ("the job wrote", "times", "p50", "p90", "max"), tuple(rows), figures, BOUNDS
    )
