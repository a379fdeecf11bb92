"""RolloutBatch: many rollouts, admitted a bounded number at a time, in shards whose histories stay small."""

import asyncio
import re

from pydantic import Field
from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

from emberpool.activities import names
from emberpool.activities.models import LoadTasksInput, LoadTasksOutput
from emberpool.pool.model.claim import Source
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.rollout import (
    RolloutBatchInput,
    RolloutBatchResult,
    RolloutInput,
    RolloutOutcome,
    RolloutResult,
    RolloutTask,
)
from emberpool.workflows.dispatch import call
from emberpool.workflows.meter import batch_ended
from emberpool.workflows.plain import NOT_GIVEN, Plain, parsed
from emberpool.workflows.searchable import make_batch_searchable

SHARD_SIZE = 500
"""Children per shard: about 3,000 of its events, under the 4,096 at which the server suggests to continue as new."""
PAGE = 50
"""Tasks loaded at once: a payload of some 100 KiB."""
SEARCHABLE_PATCH = "emberpool-searchable-batch"
"""Histories without it are of batches that asked no worker about search attributes."""


class ShardInput(Frozen):
    """Rollouts `first` to `first + count` of a batch, `concurrency` of them at a time."""

    batch: RolloutBatchInput
    first: int
    count: int
    concurrency: int


class BatchProgress(Frozen):
    """Answer of the query `progress`."""

    done: int = 0
    total: int = 0
    by_outcome: dict[RolloutOutcome, int] = Field(default_factory=dict[RolloutOutcome, int])


@workflow.defn(name=names.ROLLOUT_SHARD)
class RolloutShard:
    """A part of a batch. Its parent reads its counts from its result; people see them by query."""

    @workflow.init
    def __init__(self, shard: ShardInput) -> None:
        self._shard = shard
        self._counts = RolloutBatchResult(batch_id=shard.batch.batch_id)
        self._gate = asyncio.Semaphore(shard.concurrency)
        self._page_first = 0
        self._page: tuple[RolloutTask, ...] = ()

    @workflow.run
    async def run(self, shard: ShardInput) -> RolloutBatchResult:
        """Start each rollout as a child as soon as another has ended."""
        running: list[asyncio.Task[None]] = []
        try:
            for number in range(shard.first, shard.first + shard.count):
                task = await self._task(number // shard.batch.rollouts_per_task)
                await self._gate.acquire()
                running.append(asyncio.create_task(self._one(number, task)))
            await asyncio.gather(*running)
        except asyncio.CancelledError:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise
        return self._counts

    @workflow.query(name=names.BATCH_PROGRESS)
    def progress(self) -> BatchProgress:
        """How far the shard is."""
        counts = self._counts
        return BatchProgress(done=counts.rollouts, total=self._shard.count, by_outcome=dict(counts.by_outcome))

    async def _task(self, index: int) -> RolloutTask:
        batch = self._shard.batch
        if batch.tasks_url is None:
            return batch.tasks[index]
        if not self._page_first <= index < self._page_first + len(self._page):
            self._page = (await _load(batch, index, PAGE, count=False)).tasks
            self._page_first = index
            if not self._page:
                raise InvalidInput("tasks_url", f"{batch.tasks_url} has no task {index} any more")
        return self._page[index - self._page_first]

    async def _one(self, number: int, task: RolloutTask) -> None:
        try:
            result = await self._child(number, task)
        except ChildWorkflowError as error:
            if workflow.cancellation_reason() is not None:
                raise
            result = self._failed(number, task, error.cause or error)
        except WorkflowAlreadyStartedError as error:
            result = self._failed(number, task, error)  # left by an earlier run of this batch, and ending
        finally:
            self._gate.release()
        self._counts = counted(self._counts, result)  # after the await: others count meanwhile

    async def _child(self, number: int, task: RolloutTask) -> RolloutResult:
        batch = self._shard.batch
        rollout_id = self._rollout_id(number, task)
        result: RolloutResult = await workflow.execute_child_workflow(
            names.ROLLOUT,
            RolloutInput(
                rollout_id=rollout_id,
                task=task,
                profile=batch.profile,
                caller=batch.caller,
                policy=batch.policy,
                policy_task_queue=batch.policy_task_queue,
                task_queue=batch.task_queue,
                seed=batch.seed * 1_000_003 + number,
                max_turns=batch.max_turns,
                wait_timeout_s=batch.wait_timeout_s,
                results_url=batch.results_url,
                bundle=batch.bundle,
                requirements=batch.requirements,
                secrets=batch.secrets,
            ),
            id=f"{workflow.info().workflow_id}/{rollout_id}",
            result_type=RolloutResult,
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            static_summary=f"{task.id}, rollout {number % batch.rollouts_per_task + 1} of {batch.rollouts_per_task}",
        )
        return result

    def _failed(self, number: int, task: RolloutTask, error: BaseException) -> RolloutResult:
        return RolloutResult(
            rollout_id=self._rollout_id(number, task),
            task_id=task.id,
            outcome=RolloutOutcome.INFRA,
            reward=None,
            reason=f"{type(error).__name__}: {error}"[:1000],
        )

    def _rollout_id(self, number: int, task: RolloutTask) -> str:
        """Unique by its number; the task's id is there for people."""
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", task.id)[:80]
        return f"{number:06d}-{readable}"


@workflow.defn(name=names.ROLLOUT_BATCH)
class RolloutBatch:
    """Runs every task `rollouts_per_task` times and returns counts; each rollout's result lies under `results_url`."""

    _batch: RolloutBatchInput

    def __init__(self) -> None:
        self._total = 0

    @workflow.run
    async def run(self, given: Plain[RolloutBatchInput] = NOT_GIVEN) -> RolloutBatchResult:
        """Shards run side by side and share the batch's concurrency by their size. A wrong input fails once."""
        batch = self._batch = parsed(RolloutBatchInput, given)
        self._total = await self._tasks(batch) * batch.rollouts_per_task
        firsts = range(0, self._total, SHARD_SIZE)
        sizes = [min(SHARD_SIZE, self._total - first) for first in firsts]
        shares = _shares(batch.concurrency, sizes)
        parts = await asyncio.gather(*[self._run_shard(*shard) for shard in zip(firsts, sizes, shares, strict=True)])
        result = RolloutBatchResult(batch_id=batch.batch_id, results_url=batch.results_url)
        for part in parts:
            result = merged(result, part)
        batch_ended(batch.profile, result.worst_ttfc_s)
        return result

    @workflow.query(name=names.BATCH_PROGRESS)
    def progress(self) -> BatchProgress:
        """The batch's size; each shard tells how far it is."""
        return BatchProgress(total=self._total)

    async def _tasks(self, batch: RolloutBatchInput) -> int:
        """How many tasks there are. The same activity says whether a batch can be made searchable, so one whose tasks
        came with it asks too."""
        if batch.tasks and not workflow.patched(SEARCHABLE_PATCH):
            return len(batch.tasks)
        loaded = await _load(batch, 0, 1, count=True)
        if loaded.searchable:
            make_batch_searchable(batch.caller, batch.profile)
        return len(batch.tasks) or loaded.total

    async def _run_shard(self, first: int, count: int, concurrency: int) -> RolloutBatchResult:
        result: RolloutBatchResult = await workflow.execute_child_workflow(
            names.ROLLOUT_SHARD,
            ShardInput(batch=self._batch, first=first, count=count, concurrency=concurrency),
            id=f"{workflow.info().workflow_id}/shard-{first // SHARD_SIZE}",
            result_type=RolloutBatchResult,
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            static_summary=f"rollouts {first} to {first + count - 1}",
        )
        return result


def _shares(total: int, sizes: list[int]) -> list[int]:
    """`total` split in proportion to `sizes`, so that all parts end at about the same time; at least 1 each."""
    return [max(1, round(total * size / sum(sizes))) for size in sizes]


async def _load(batch: RolloutBatchInput, offset: int, limit: int, count: bool) -> LoadTasksOutput:
    return await call(
        names.LOAD_TASKS,
        LoadTasksInput(
            url=batch.tasks_url or "",
            offset=offset,
            limit=limit,
            count=count,
            results_url=batch.results_url or "" if count else "",  # once, as the batch begins
        ),
        LoadTasksOutput,
        summary=f"load tasks from {offset}",
        config={"task_queue": names.control_queue(batch.task_queue)},
    )


def counted(counts: RolloutBatchResult, result: RolloutResult) -> RolloutBatchResult:
    """The counts with one more result."""
    one = RolloutBatchResult(
        batch_id=counts.batch_id,
        rollouts=1,
        by_outcome={result.outcome: 1},
        by_source={} if result.source is None else {result.source: 1},
        by_recycle={} if result.recycle is None else {result.recycle: 1},
        reward_sum=result.reward or 0.0,
        worst_ttfc_s=result.ttfc_s or 0.0,
    )
    return merged(counts, one)


def merged(left: RolloutBatchResult, right: RolloutBatchResult) -> RolloutBatchResult:
    """Two parts of one batch as one."""
    return left.model_copy(
        update={
            "rollouts": left.rollouts + right.rollouts,
            "by_outcome": {
                o: n for o in RolloutOutcome if (n := left.by_outcome.get(o, 0) + right.by_outcome.get(o, 0))
            },
            "by_source": {s: n for s in Source if (n := left.by_source.get(s, 0) + right.by_source.get(s, 0))},
            "by_recycle": {
                r: n for r in RecycleOutcome if (n := left.by_recycle.get(r, 0) + right.by_recycle.get(r, 0))
            },
            "reward_sum": left.reward_sum + right.reward_sum,
            "worst_ttfc_s": max(left.worst_ttfc_s, right.worst_ttfc_s),
        }
    )
