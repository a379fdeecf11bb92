"""`emberpool demo`: every HumanEval problem as durable rollouts in a few warm pods of this machine."""

import asyncio
import os
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import IndexRebuilding, InvalidInput, PoolUnavailable
from emberpool.pool.model.profile import Limits, Profile
from emberpool.pool.model.rollout import RolloutBatchInput, RolloutBatchResult, RolloutTask
from emberpool.worker.cli.output import console
from emberpool.worker.demo.plan import plans_of
from emberpool.worker.demo.policy import POLICY, POLICY_QUEUE, scripted_policy
from emberpool.worker.demo.problems import problems
from emberpool.worker.demo.progress import show_until
from emberpool.worker.demo.report import Report, make_report
from emberpool.worker.demo.results import count_results, read_results
from emberpool.worker.demo.table import print_report
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.run import connect_client
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions

PROFILE = "demo"
CALLER = "emberpool-demo"
MEMORY_MB = 256
"""Small, so that a greedy candidate meets it within a moment."""
WARM_S = 60.0
LONGEST_RUN = timedelta(hours=4)
"""A batch that is not done by then is terminated: something is badly wrong."""

T = TypeVar("T")


@dataclass(frozen=True)
class DemoOptions:
    """What the demo is run with."""

    data_dir: Path
    """Databases, logs, tasks and results; a stack's data folder, so that `emberpool dev` can show it again."""
    rollouts_per_task: int = 4
    problems: int | None = None
    """The first so many of the 164; None means all."""
    pods: int | None = None
    """The pool's ceiling; None means twice the cores."""
    json: Path | None = None
    """File for the report, for machines."""
    stay: bool = False
    """Whether the stack stays up afterwards, until the command is stopped."""
    seed: int = 0


async def demo(options: DemoOptions) -> int:
    """Run the demo and print its report. 0 if there is one result per rollout and every one ended as planned, else 1.

    Raises:
        InvalidInput: an option can never work, or the problems are not installed.
        StackError: a part of the stack cannot start, or ended meanwhile.
    """
    tasks = problems(options.problems)
    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise InvalidInput("json", f"the folder of {options.json} does not exist")
    out = console()
    pods = options.pods or 2 * (os.cpu_count() or 1)
    total = len(tasks) * options.rollouts_per_task
    out.print(f"{len(tasks)} problems, {options.rollouts_per_task} rollouts each: {total} rollouts on {pods} pods")
    out.print("Starting Temporal, Redis, pods and workers ...")
    async with EmbeddedStack(StackOptions(data_dir=options.data_dir, profiles=(profile(pods),))) as stack:
        report = await _run(out, options, stack, tasks, pods)
        print_report(out, report, f"emberpool dev --data-dir {options.data_dir}")
        if options.json is not None:
            options.json.write_text(report.model_dump_json(indent=2) + "\n")
        if options.stay:
            out.print("Everything stays up; Ctrl-C takes it down.")
            await stack.wait()
    return 1 if report.differences else 0


def profile(pods: int) -> Profile:
    """The demo's pods: small, all warm, no network."""
    return Profile(name=PROFILE, min_warm=pods, max_pods=pods, limits=Limits(memory_mb=MEMORY_MB))


async def _run(
    out: Console, options: DemoOptions, stack: EmbeddedStack, tasks: Sequence[RolloutTask], pods: int
) -> Report:
    batch = f"humaneval-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder = stack.data_dir / "demo" / batch
    results = folder / "results"
    results.mkdir(parents=True)
    tasks_file = folder / "tasks.jsonl"
    tasks_file.write_text("".join(f"{task.model_dump_json()}\n" for task in tasks))
    plans = plans_of([task.id for task in tasks], options.rollouts_per_task, options.seed)
    client = await _client(stack)
    request = RolloutBatchInput(
        batch_id=batch,
        profile=PROFILE,
        caller=CALLER,
        policy=POLICY,
        policy_task_queue=POLICY_QUEUE,
        tasks_url=tasks_file.as_uri(),
        results_url=results.as_uri(),
        rollouts_per_task=options.rollouts_per_task,
        concurrency=2 * pods,
        seed=options.seed,
        task_queue=stack.settings.task_queue,
    )
    out.print(f"{pods} pods are warm after {await _warm(stack, pods):.1f} s")
    begun = time.monotonic()
    async with Worker(client, task_queue=POLICY_QUEUE, activities=[scripted_policy]):
        work = _while_up(stack, _batch(client, request))
        await show_until(out, len(plans), lambda: count_results(results), work)
    wall_s = time.monotonic() - begun
    return make_report(
        plans,
        read_results(results),
        spare_pods=await _idle_fresh(stack),
        wall_s=wall_s,
        temporal_ui=ui_address(stack, batch),
        results_folder=str(results),
    )


async def _client(stack: EmbeddedStack) -> Client:
    # Somebody else's server may need TLS or a key: then Temporal's own configuration says how to reach it.
    if stack.ui_url is None:
        return await connect_client()
    plugin = EmberpoolPlugin()
    return await Client.connect(stack.temporal_address, namespace=stack.temporal_namespace, plugins=[plugin])


async def _warm(stack: EmbeddedStack, pods: int) -> float:
    """Wait until the pool's pods are warm; seconds that it took.

    Raises:
        PoolUnavailable: they are not within WARM_S.
    """
    begun = time.monotonic()
    while (warm := await _idle_fresh(stack)) < pods:
        if time.monotonic() - begun > WARM_S:
            raise PoolUnavailable(
                f"{warm} of {pods} pods are warm after {WARM_S:.0f} s: read the logs in the data folder"
            )
        await asyncio.sleep(0.1)
    return time.monotonic() - begun


async def _idle_fresh(stack: EmbeddedStack) -> int:
    """Warm pods that nobody has used yet; 0 while there is no index."""
    redis = await connect(stack.settings.redis_url)
    try:
        return (await RedisIndex(redis, stack.settings.deployment, PROFILE).counts()).idle_fresh
    except IndexRebuilding:
        return 0
    finally:
        await redis.aclose()


def ui_address(stack: EmbeddedStack, workflow_id: str) -> str:
    """Where a person sees the batch."""
    if stack.ui_url is None:
        return f"that of {stack.temporal_address}, workflow {workflow_id}"
    return f"{stack.ui_url}/namespaces/{stack.temporal_namespace}/workflows/{workflow_id}"


async def _batch(client: Client, request: RolloutBatchInput) -> RolloutBatchResult:
    result: RolloutBatchResult = await client.execute_workflow(
        names.ROLLOUT_BATCH,
        request,
        id=request.batch_id,
        task_queue=request.task_queue,
        result_type=RolloutBatchResult,
        execution_timeout=LONGEST_RUN,
        static_summary=f"HumanEval, {request.rollouts_per_task} rollouts each",
    )
    return result


async def _while_up(stack: EmbeddedStack, work: Awaitable[T]) -> T:
    """The work's value; if a part of the stack ends first, its StackError."""
    task, end = asyncio.ensure_future(work), asyncio.ensure_future(stack.wait())
    try:
        await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else end.result()
    finally:
        task.cancel()
        end.cancel()
        await asyncio.gather(task, end, return_exceptions=True)
