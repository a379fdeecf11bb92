"""`emberpool demo`: every HumanEval problem as durable rollouts in a few warm pods of this machine."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Limits, Profile
from emberpool.pool.model.rollout import RolloutBatchInput, RolloutBatchResult, RolloutResult, RolloutTask
from emberpool.worker.cli.output import console
from emberpool.worker.demo.costs import sampled_costs
from emberpool.worker.demo.plan import Plan, plans_of
from emberpool.worker.demo.policy import POLICY, scripted_policy
from emberpool.worker.demo.problems import problems
from emberpool.worker.demo.progress import show_until
from emberpool.worker.demo.report import Report, make_report
from emberpool.worker.demo.results import count_results, read_results
from emberpool.worker.demo.site import DemoSite, demo_site
from emberpool.worker.demo.table import print_report
from emberpool.workflows.batch import SHARD_SIZE

PROFILE = "demo"
CALLER = "emberpool-demo"
MEMORY_MB = 256
"""Small, so that a greedy candidate meets it within a moment."""
LONGEST_RUN = timedelta(hours=4)
"""A batch that is not done by then is terminated: something is badly wrong."""


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
        PoolUnavailable: the pods did not become warm.
        StackError: a part of the stack cannot start, or ended meanwhile.
    """
    tasks = problems(options.problems)
    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise InvalidInput("json", f"the folder of {options.json} does not exist")
    out = console()
    pods = options.pods or 2 * (os.cpu_count() or 1)
    plans = plans_of([task.id for task in tasks], options.rollouts_per_task, options.seed)
    out.print(f"{len(tasks)} problems, {options.rollouts_per_task} rollouts each: {len(plans)} rollouts on {pods} pods")
    out.print("Starting Temporal, Redis, pods and workers ...")
    async with demo_site(options.data_dir, profile(pods)) as site:
        report = await _run(out, site, request(options, site, tasks), plans)
        print_report(out, report, f"emberpool dev --data-dir {options.data_dir}")
        if options.json is not None:
            options.json.write_text(report.model_dump_json(indent=2) + "\n")
        if options.stay:
            out.print("Everything stays up; Ctrl-C takes it down.")
            await site.stack.wait()
    return 1 if report.differences else 0


def profile(pods: int) -> Profile:
    """The demo's pods: small, all warm, no network."""
    return Profile(name=PROFILE, min_warm=pods, max_pods=pods, limits=Limits(memory_mb=MEMORY_MB))


def request(options: DemoOptions, site: DemoSite, tasks: Sequence[RolloutTask]) -> RolloutBatchInput:
    """Write the tasks' file and make the results' folder; what the batch is started with."""
    results, tasks_file = site.folder / "results", site.folder / "tasks.jsonl"
    results.mkdir(parents=True)
    tasks_file.write_text("".join(f"{task.model_dump_json()}\n" for task in tasks))
    return RolloutBatchInput(
        batch_id=site.name,
        profile=PROFILE,
        caller=CALLER,
        policy=POLICY,
        policy_task_queue=site.policy_queue,
        tasks_url=tasks_file.as_uri(),
        results_url=results.as_uri(),
        rollouts_per_task=options.rollouts_per_task,
        # A little above the ceiling keeps it busy; more would only stand in line.
        concurrency=site.profile.max_pods + 2,
        seed=options.seed,
        task_queue=site.name,
    )


async def _run(out: Console, site: DemoSite, batch: RolloutBatchInput, plans: Mapping[str, Plan]) -> Report:
    results = site.folder / "results"
    out.print(f"{site.profile.min_warm} pods are warm after {await site.warm():.1f} s")
    begun = time.monotonic()
    async with Worker(site.client, task_queue=site.policy_queue, activities=[scripted_policy]):
        work = site.while_up(_batch(site, batch))
        await show_until(out, len(plans), lambda: count_results(results), work)
    wall_s = time.monotonic() - begun
    read = read_results(results)
    return make_report(
        plans,
        read,
        costs=await sampled_costs(site.client, [_workflow_id(batch, one) for one in read]),
        spare_pods=await site.unused_pods(),
        wall_s=wall_s,
        temporal_ui=site.ui_address(batch.batch_id),
        results_folder=str(results),
    )


def _workflow_id(batch: RolloutBatchInput, result: RolloutResult) -> str:
    number = int(result.rollout_id.split("-")[0])
    return f"{batch.batch_id}/shard-{number // SHARD_SIZE}/{result.rollout_id}"


async def _batch(site: DemoSite, batch: RolloutBatchInput) -> RolloutBatchResult:
    result: RolloutBatchResult = await site.client.execute_workflow(
        names.ROLLOUT_BATCH,
        batch,
        id=batch.batch_id,
        task_queue=batch.task_queue,
        result_type=RolloutBatchResult,
        execution_timeout=LONGEST_RUN,
        static_summary=f"HumanEval, {batch.rollouts_per_task} rollouts each",
    )
    return result
