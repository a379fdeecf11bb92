"""What a warm tool call costs above an empty activity on the same server, worker and task queue."""

import asyncio
import uuid

from calls_workflow import WARM_CALLS, CallsInput, CallsOutput, WarmCalls, empty
from figures import Bound, Measured, ms, quantile
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import IndexRebuilding
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack

NAME = "warm_call"
BOUNDS = (Bound("difference_p50_ms", 5),)
WARM_S = 60.0
"""Within this many seconds the pod must be there."""
SETTING = (
    "Real: Temporal's development server (SQLite in a file, WAL, synchronous=1; MaxPollRPS raised), Redis, a local pod "
    "with its emberd, one worker process. By turns in one workflow, closed loop, each timed from one workflow task to "
    "the next."
)


async def measure(stack: EmbeddedStack, profile: str, rounds: int) -> Measured:
    """`rounds` calls of each kind."""
    client = await Client.connect(
        stack.temporal_address, namespace=stack.temporal_namespace, plugins=[EmberpoolPlugin(stack.settings)]
    )
    queue = stack.settings.task_queue
    async with Worker(client, task_queue=queue, workflows=[WarmCalls], activities=[empty]):
        await _pod_is_warm(stack, profile)
        output: CallsOutput = await client.execute_workflow(
            WARM_CALLS,
            CallsInput(profile=profile, rounds=rounds),
            id=f"bench-warm-{uuid.uuid4().hex[:8]}",
            task_queue=queue,
            result_type=CallsOutput,
        )
    return report(output)


async def _pod_is_warm(stack: EmbeddedStack, profile: str) -> None:
    redis = await connect(stack.settings.redis_url)
    index = RedisIndex(redis, stack.settings.deployment, profile)
    try:
        async with asyncio.timeout(WARM_S):
            while True:
                if await _unused(index):
                    return
                await asyncio.sleep(0.1)
    finally:
        await redis.aclose()


async def _unused(index: RedisIndex) -> int:
    try:
        return (await index.counts()).idle_fresh
    except IndexRebuilding:
        return 0


def report(output: CallsOutput) -> Measured:
    """Quantiles of both, their difference and ratio."""
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {"calls": len(output.warm_ms)}
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        bare, warm = quantile(output.empty_ms, share), quantile(output.warm_ms, share)
        rows.append((name, ms(bare), ms(warm), ms(warm - bare), f"{warm / bare:.2f}"))
        figures |= {f"empty_{name}_ms": bare, f"warm_{name}_ms": warm, f"difference_{name}_ms": warm - bare}
        figures[f"ratio_{name}"] = warm / bare
    header = ("", "empty activity", "warm call of `true`", "difference", "ratio")
    return Measured(
        NAME, f"warm tool call, {len(output.warm_ms)} of each", SETTING, header, tuple(rows), figures, BOUNDS
    )
