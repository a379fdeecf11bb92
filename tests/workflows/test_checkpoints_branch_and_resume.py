"""A sandbox's changes outlive it: it is resumed later, branched, and never restored as something else."""

import uuid
from pathlib import Path

from fixtures.stack import Site
from scenarios.checkpoints import CHECKPOINT_FLOWS, CheckpointPlan, CheckpointSeen, RunAndSave
from temporalio.worker import Worker

from emberpool.pool.model.checkpoint import Checkpoint


async def run(site: Site, command: str, from_: Checkpoint | None = None, image: str = "") -> CheckpointSeen:
    """One sandbox, from its start to its checkpoint."""
    plan = CheckpointPlan(profile="py", task_queue=site.queue, command=command, from_=from_, image=image)
    queue = f"checkpoints-{uuid.uuid4().hex[:8]}"
    async with Worker(site.client, task_queue=queue, workflows=CHECKPOINT_FLOWS):
        return await site.client.execute_workflow(RunAndSave.run, plan, id=queue, task_queue=queue)


def blob(site: Site, checkpoint: Checkpoint) -> Path:
    return Path(site.settings.blob_url.removeprefix("file://")) / checkpoint.blob


async def test_a_sandbox_is_paused_and_resumed(site: Site) -> None:
    """The pod is released and reset between; the same state saved again is the same checkpoint."""
    first = await run(site, "echo one > a; mkdir d; echo $HOSTNAME > d/x; echo rc > ~/.rc; echo done")
    second = await run(site, "cat a ~/.rc; echo two > b", first.checkpoint)
    assert second.stdout == "one\nrc\n"
    assert (await run(site, "cat a b", second.checkpoint)).stdout == "one\ntwo\n"
    again = await run(site, "true", first.checkpoint)
    assert again.checkpoint == first.checkpoint and blob(site, first.checkpoint).stat().st_mode & 0o777 == 0o600
    assert (await run(site, "ls -A")).stdout == "", "nobody who does not ask for it gets it"
