"""The whole of it in pods: workers as deploy/overlays/testcluster has them, HumanEval rollouts in pods of both runtime
classes, and a worker that is deleted meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.cluster import ClusterUp
from fixtures.deployed import deployed, kubectl_of
from fixtures.waiting import wait_until
from temporalio.client import Client
from temporalio.worker import Worker
from testcluster.cluster import Cluster
from testcluster.worker_image import write_worker_image

from emberpool.activities import names
from emberpool.pool.model.claim import Source
from emberpool.pool.model.rollout import RolloutBatchInput, RolloutBatchResult
from emberpool.worker.demo.plan import expected, plans_of
from emberpool.worker.demo.policy import POLICY, scripted_policy
from emberpool.worker.demo.problems import problems
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack

PROBLEMS, TIMES = 12, 2
WORKERS = ("--namespace", "emberpool", "--selector", "app.kubernetes.io/name=emberpool-worker")
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def with_worker_image(cluster: ClusterUp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, once its node has the workers' image."""
    own = cluster.own
    if own is None:
        pytest.skip("images are imported into a cluster of our own only")
    archive = tmp_path_factory.mktemp("image") / "worker.tar"
    write_worker_image(own.where, archive)
    own.containerd.load(archive)
    archive.unlink()
    yield own


async def test_every_result_arrives(with_worker_image: Cluster, stack: EmbeddedStack, tmp_path: Path) -> None:
    """A batch per runtime class at once; a worker's pod is deleted once rollouts have begun to end. Every rollout ends
    as its script says, and most are served by pods that were warm."""
    async with deployed(with_worker_image, stack, tmp_path) as queue:
        client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
        async with Worker(client, task_queue=f"{queue}-policy", activities=[scripted_policy]):
            batches = asyncio.gather(*(_batch(client, queue, name) for name in ("runc", "gvisor")))
            query = f"WorkflowType = '{names.ROLLOUT}' AND ExecutionStatus = 'Completed' AND TaskQueue = '{queue}'"

            async def some_have_ended() -> bool:
                return batches.done() or (await client.count_workflows(query)).count >= TIMES

            await wait_until(some_have_ended, 120)
            assert not batches.done(), batches.result()
            run = kubectl_of(with_worker_image)
            first = (await run("get", "pods", *WORKERS, "-o", "name")).split()[0]
            await run("delete", first, "--namespace", "emberpool", "--wait=false")
            results = await batches
        planned = expected(plans_of([task.id for task in problems(PROBLEMS)], TIMES, 0).values())
        for result in results:
            assert Counter(result.by_outcome) == planned.outcomes, result
            assert result.by_source.get(Source.REUSE, 0) > PROBLEMS * TIMES / 2, result
        workers = (await run("get", "pods", *WORKERS, "-o", "name")).split()
        assert first not in workers or len(workers) > 2, "another one took its place"


async def _batch(client: Client, queue: str, profile: str) -> RolloutBatchResult:
    given = RolloutBatchInput(
        batch_id=f"{queue}-{profile}",
        profile=profile,
        caller="demo",
        policy=POLICY,
        policy_task_queue=f"{queue}-policy",
        tasks=problems(PROBLEMS),
        rollouts_per_task=TIMES,
        concurrency=4,
        task_queue=queue,
    )
    result: RolloutBatchResult = await client.execute_workflow(
        names.ROLLOUT_BATCH, given, id=given.batch_id, task_queue=queue, result_type=RolloutBatchResult
    )
    return result
