"""What others answer wrongly ends a workflow with a reason; its task is not retried for ever."""

import asyncio
import uuid
from pathlib import Path

import pytest
from fixtures.stack import Site
from scenarios.policies import POLICY, task
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.model.rollout import PolicyInput, RolloutBatchInput, RolloutInput, RolloutOutcome
from emberpool.workflows.batch import RolloutBatch, RolloutShard, ShardInput
from emberpool.workflows.rollout import Rollout


@activity.defn(name=POLICY)
async def confused(question: PolicyInput) -> object:
    """Answers with something that is no Action."""
    return {"stepps": [], "prompt": question.task.prompt}


def batch(site: Site, tasks: Path, queue: str) -> RolloutBatchInput:
    """A batch of the tasks in a file."""
    return RolloutBatchInput(
        batch_id="b",
        profile="py",
        caller="trainer",
        policy=POLICY,
        policy_task_queue=queue,
        tasks_url=f"file://{tasks}",
        task_queue=site.queue,
    )


async def test_a_policy_that_answers_with_no_action_is_infra(site: Site) -> None:
    """The rollout ends without a reward and names the wrong field."""
    queue = f"policy-{uuid.uuid4().hex[:8]}"
    given = RolloutInput(
        rollout_id="r1",
        task=task(0),
        profile="py",
        caller="trainer",
        policy=POLICY,
        policy_task_queue=queue,
        task_queue=site.queue,
    )
    async with Worker(site.client, task_queue=queue, activities=[confused]):
        handle = await site.client.start_workflow(Rollout.run, given, id=f"r-{queue}", task_queue=site.queue)
        result = await asyncio.wait_for(handle.result(), 20)
    assert (result.outcome, result.reward) == (RolloutOutcome.INFRA, None)
    assert "stepps" in result.reason, result.reason
    await site.settled()


async def test_a_task_file_that_shrinks_is_named(site: Site, tmp_path: Path) -> None:
    """A shard whose tasks are no longer in the file fails once and says where."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("")
    shard = ShardInput(batch=batch(site, tasks, "none"), first=0, count=2, concurrency=1)
    handle = await site.client.start_workflow(
        RolloutShard.run, shard, id=f"s-{uuid.uuid4().hex}", task_queue=site.queue
    )
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 15)
    assert "tasks_url" in str(caught.value.cause)


async def test_a_rollout_whose_id_still_runs_fails_no_batch(site: Site, tmp_path: Path) -> None:
    """A batch started again at once, while a rollout of its last run still ends, counts that one as infra."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(f"{task(0).model_dump_json()}\n")
    name, queue = f"b-{uuid.uuid4().hex}", f"none-{uuid.uuid4().hex}"
    rollout = RolloutInput(
        rollout_id="r", task=task(0), profile="py", caller="c", policy=POLICY, policy_task_queue=queue
    )
    left = await site.client.start_workflow(
        names.ROLLOUT, rollout, id=f"{name}/shard-0/000000-answer_0", task_queue=site.queue
    )
    handle = await site.client.start_workflow(
        RolloutBatch.run, batch(site, tasks, queue), id=name, task_queue=site.queue
    )
    done = await asyncio.wait_for(handle.result(), 20)
    assert done.by_outcome == {RolloutOutcome.INFRA: 1}
    await left.terminate("the test is over")
