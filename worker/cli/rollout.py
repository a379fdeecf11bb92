"""`emberpool rollout`: a batch of rollouts from a file of tasks."""

import asyncio
import getpass
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.rollout import RolloutBatchInput, RolloutBatchResult, RolloutOutcome
from emberpool.worker.cli.output import console, print_json, print_pairs
from emberpool.worker.cli.running import run_until_stopped
from emberpool.worker.cli.tasks import INLINE_BYTES, read_tasks
from emberpool.worker.cli.temporal import (
    QUEUE,
    Address,
    AsJson,
    Namespace,
    TaskQueue,
    TemporalProfile,
    require_worker,
)

if TYPE_CHECKING:
    from temporalio.client import Client

    from emberpool.worker.run import Reach

LONGEST_RUN = timedelta(days=7)


def command(
    tasks: Annotated[str, typer.Argument(metavar="TASKS", help="File of JSON lines, or an fsspec URL of one.")],
    policy: Annotated[str, typer.Option(help="Name of the activity that decides each turn.")],
    policy_queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Task queue of the policy's worker; emberpool's by default.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Whose pool.")] = "default",
    caller: Annotated[str | None, typer.Option(help="Whose used pods it may get; your user name by default.")] = None,
    results: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder or fsspec URL, one JSON file per rollout.")
    ] = None,
    rollouts_per_task: Annotated[int, typer.Option(min=1, max=1000)] = 1,
    concurrency: Annotated[int, typer.Option(min=1, max=2000, help="Rollouts in flight.")] = 16,
    max_turns: Annotated[int, typer.Option(min=1, max=100)] = 8,
    seed: Annotated[int, typer.Option(help="What the policy is given to draw from.")] = 0,
    batch_id: Annotated[str | None, typer.Option(metavar="ID", help="The workflow's id; made up by default.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it, print its id, and leave.")] = False,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
    temporal_profile: TemporalProfile = None,
    task_queue: TaskQueue = QUEUE,
) -> None:
    """Run a policy on every task of a file, in warm pods, and count how the rollouts ended.

    Each line of TASKS is a task: `emberpool schema RolloutTask` tells its fields. Files and folders of this machine are
    given to the workers by path, so they must see them too; a small task file travels by itself.

    Exit status 0 if every rollout has a reward, 1 if some have none, because of the infrastructure. Ctrl-C cancels the
    batch.

    [bold]Examples[/bold]

      emberpool rollout tasks.jsonl --policy my_policy --results out/

      emberpool rollout s3://bucket/tasks.jsonl --policy my_policy --detach --json
    """
    from emberpool.worker.run import Reach

    read = read_tasks(tasks)
    inline = read.size <= INLINE_BYTES
    batch = checked(
        RolloutBatchInput,
        batch_id=batch_id or f"rollouts-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 1000:03d}",
        profile=profile,
        caller=caller or getpass.getuser(),
        policy=policy,
        policy_task_queue=policy_queue,
        tasks=read.tasks if inline else (),
        tasks_url=None if inline else read.url,
        results_url=None if results is None else results if "://" in results else Path(results).absolute().as_uri(),
        rollouts_per_task=rollouts_per_task,
        concurrency=concurrency,
        max_turns=max_turns,
        seed=seed,
        task_queue=task_queue,
    )
    total = len(read.tasks) * rollouts_per_task
    reach = Reach(address, namespace, temporal_profile)
    raise typer.Exit(run_until_stopped(_run(batch, total, reach, detach, as_json)))


async def _run(batch: RolloutBatchInput, total: int, reach: "Reach", detach: bool, as_json: bool) -> int:
    from temporalio.exceptions import WorkflowAlreadyStartedError

    from emberpool.activities import names
    from emberpool.worker.run import connect_client

    client = await connect_client(reach=reach)
    await require_worker(client, batch.task_queue)
    try:
        handle: Any = await client.start_workflow(
            names.ROLLOUT_BATCH,
            batch,
            id=batch.batch_id,
            task_queue=batch.task_queue,
            result_type=RolloutBatchResult,
            execution_timeout=LONGEST_RUN,
            static_summary=f"{total} rollouts of {batch.policy} for {batch.caller}",
        )
    except WorkflowAlreadyStartedError as error:
        raise InvalidInput("--batch-id", f"a batch {batch.batch_id!r} runs already: choose another id") from error
    if detach:
        print_json({"batch_id": handle.id, "run_id": handle.first_execution_run_id}) if as_json else print(handle.id)
        return 0
    try:
        result = await _result(client, handle, total, quiet=as_json)
    except asyncio.CancelledError:
        await asyncio.shield(handle.cancel())
        raise
    _tell(result, as_json)
    return 1 if result.by_outcome.get(RolloutOutcome.INFRA) or result.rollouts < total else 0


async def _result(client: "Client", handle: Any, total: int, quiet: bool) -> RolloutBatchResult:
    from emberpool.worker.cli.batch_progress import BatchWatch
    from emberpool.worker.demo.progress import show_until

    if quiet:
        result: RolloutBatchResult = await handle.result()
        return result
    watch = BatchWatch(client, handle.id, total)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(watch.look())
        try:
            result = await show_until(console(stderr=True), total, lambda: watch.done, handle.result())
        finally:
            looking.cancel()
    return result


def _tell(result: RolloutBatchResult, as_json: bool) -> None:
    infra = result.by_outcome.get(RolloutOutcome.INFRA, 0)
    rewarded = result.rollouts - infra
    if as_json:
        print_json({**result.model_dump(mode="json"), "rewarded": rewarded})
        return

    def counts(given: Any) -> str:
        return ", ".join(f"{name} {number}" for name, number in given.items()) or "none"

    mean = f", mean {result.reward_sum / rewarded:.3f}" if rewarded else ""
    pairs = [
        ("rollouts", str(result.rollouts)),
        ("outcomes", counts(result.by_outcome)),
        ("rewards", f"{result.reward_sum:g} of {rewarded} rewarded{mean}"),
        ("served from", counts(result.by_source)),
        ("worst wait", f"{result.worst_ttfc_s:.2f} s to the first command"),
        ("results", result.results_url or "not kept; --results DIR keeps them"),
    ]
    print_pairs(f"batch {result.batch_id}", pairs)
