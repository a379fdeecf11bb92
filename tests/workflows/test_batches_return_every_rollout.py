"""A batch returns one result per rollout, and a fault of the infrastructure is never reward 0."""

import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fixtures.stack import Site
from scenarios.policies import POLICY, task, two_tries
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from emberpool.activities.batch import Batching
from emberpool.activities.blobs import Blobs
from emberpool.activities.models import LoadTasksInput
from emberpool.pool.model.claim import Source
from emberpool.pool.model.rollout import (
    RolloutBatchInput,
    RolloutInput,
    RolloutOutcome,
    RolloutResult,
)
from emberpool.workflows.batch import RolloutBatch
from emberpool.workflows.rollout import Rollout


@asynccontextmanager
async def policy(site: Site) -> AsyncGenerator[str]:
    """A worker of the trainer's own that answers for the policy."""
    queue = f"policy-{uuid.uuid4().hex[:8]}"
    async with Worker(site.client, task_queue=queue, activities=[two_tries]):
        yield queue


async def test_a_batch_returns_every_rollout(site: Site, tmp_path: Path) -> None:
    """Tasks from a file of JSON lines, results in a folder: as many as rollouts, each verified, pods reused."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(f"{one.model_dump_json()}\n" for one in (task(0), task(1, wanted=7), task(2))))
    results = tmp_path / "results"
    async with policy(site) as queue:
        done = await site.client.execute_workflow(
            RolloutBatch.run,
            RolloutBatchInput(
                batch_id="b1",
                profile="py",
                caller="trainer",
                policy=POLICY,
                policy_task_queue=queue,
                tasks_url=f"file://{tasks}",
                rollouts_per_task=2,
                concurrency=3,
                results_url=f"file://{results}",
                task_queue=site.queue,
            ),
            id=f"batch-{uuid.uuid4().hex[:8]}",
            task_queue=site.queue,
        )
    files = sorted(results.iterdir())
    read = [RolloutResult.model_validate(json.loads(path.read_text())) for path in files]
    assert done.rollouts == len(read) == 6
    assert done.by_outcome == {RolloutOutcome.SOLVED: 4, RolloutOutcome.FAILED: 2} and done.reward_sum == 4
    assert [one.reward for one in read if one.task_id == "answer/1"] == [0.0, 0.0]
    assert all(one.failures == 1 and one.turns == 2 and one.ttfc_s is not None for one in read)
    assert done.by_source.get(Source.REUSE, 0) >= 3, "three pods cannot have served six rollouts otherwise"
    await site.settled()


async def test_an_infrastructure_fault_is_no_reward(site: Site) -> None:
    """A rollout that gets no sandbox has the outcome infra, no reward, and says why (NVIDIA-NeMo/Gym#2552)."""
    async with policy(site) as queue:
        result = await site.client.execute_workflow(
            Rollout.run,
            RolloutInput(
                rollout_id="r1",
                task=task(0),
                profile="missing",
                caller="trainer",
                policy=POLICY,
                policy_task_queue=queue,
                task_queue=site.queue,
            ),
            id=f"rollout-{uuid.uuid4().hex[:8]}",
            task_queue=site.queue,
        )
    assert (result.outcome, result.reward) == (RolloutOutcome.INFRA, None)
    assert "InvalidInput" in result.reason and "missing" in result.reason


@pytest.mark.parametrize(("url", "told"), [("s3://bucket/tasks.jsonl", "s3fs"), ("nope://a/b", "not known")])
async def test_a_url_that_no_worker_can_read_fails_once(url: str, told: str) -> None:
    """Where fsspec lacks a package, or there is none: the text names it, and nothing is retried."""
    environment = ActivityEnvironment()
    with pytest.raises(ApplicationError, match=told) as raised:
        await environment.run(Batching(1.0, Blobs(allowed_urls=[url])).load_tasks, LoadTasksInput(url=url))
    assert (raised.value.type, raised.value.non_retryable) == ("InvalidInput", True)


async def test_a_place_for_results_is_tried_at_the_start(tmp_path: Path) -> None:
    """One that cannot be written fails once, by name, before anything runs; one that can is left empty."""
    environment, good, bad = ActivityEnvironment(), tmp_path / "good", tmp_path / "file"
    bad.write_text("")
    load = Batching(1.0, Blobs(allowed_urls=[f"file://{tmp_path}"])).load_tasks
    await environment.run(load, LoadTasksInput(url="", results_url=f"file://{good}"))
    assert list(good.iterdir()) == []
    with pytest.raises(ApplicationError, match="results_url") as raised:
        await environment.run(load, LoadTasksInput(url="", results_url=f"file://{bad}/results"))
    assert (raised.value.type, raised.value.non_retryable) == ("InvalidInput", True)
