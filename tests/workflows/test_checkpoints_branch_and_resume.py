"""A sandbox's changes outlive it: it is resumed later, branched, and never restored as something else."""

import asyncio
import os
import sys
import uuid
from pathlib import Path

import pytest
from fixtures.stack import Site, running_site, site_settings
from scenarios.checkpoints import CHECKPOINT_FLOWS, CheckpointPlan, CheckpointSeen, RunAndSave
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.worker.stack.embedded import EmbeddedStack

EXAMPLE = Path(__file__).parents[2] / "examples" / "branching.py"


async def run(site: Site, command: str, from_: Checkpoint | None = None, image: str = "") -> CheckpointSeen:
    """One sandbox, from its start to its checkpoint."""
    plan = CheckpointPlan(profile="py", task_queue=site.queue, command=command, from_=from_, image=image)
    queue = f"checkpoints-{uuid.uuid4().hex[:8]}"
    async with Worker(site.client, task_queue=queue, workflows=CHECKPOINT_FLOWS):
        return await site.client.execute_workflow(RunAndSave.run, plan, id=queue, task_queue=queue)


async def refused(site: Site, from_: Checkpoint, image: str = "") -> ApplicationError:
    """The typed error of a sandbox that cannot start from it."""
    with pytest.raises(WorkflowFailureError) as caught:
        await run(site, "true", from_, image)
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause


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


async def test_nothing_else_is_restored(site: Site) -> None:
    """One of another image, one that was changed in the store, and one that is not there are InvalidInput, once."""
    saved = (await run(site, "echo one > a")).checkpoint
    other = saved.model_copy(update={"image": "other"})
    error = await refused(site, other)
    assert error.type == "InvalidInput" and "no image 'other'" in error.message
    error = await refused(site, other, "base")
    assert error.type == "InvalidInput" and "from_: the checkpoint is of image 'other'" in error.message
    place = blob(site, saved)
    data = place.read_bytes()
    place.write_bytes(data.replace(b"one\n", b"two\n"))
    error = await refused(site, saved)
    assert error.type == "InvalidInput" and "is not what was saved" in error.message, error.message
    place.unlink()
    assert (await refused(site, saved)).type == "InvalidInput"
    await site.settled()


async def test_without_a_blob_store_nothing_is_saved(stack: EmbeddedStack) -> None:
    """The error names the setting."""
    async with running_site(stack, site_settings(stack, blob_url="")) as site:
        with pytest.raises(WorkflowFailureError) as caught:
            await run(site, "true")
    assert "EMBERPOOL_BLOB_URL" in str(caught.value.cause)


async def test_the_example_branches_three_ways(stack: EmbeddedStack, site: Site) -> None:
    """Three sandboxes start from one state at once, and none sees what another one does."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "EXAMPLE_PROFILE": "py"}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "EMBERPOOL_TASK_QUEUE": site.queue}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE), env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(90):
        out, errors = await process.communicate()
    assert process.returncode == 0, out.decode() + errors.decode()[-2000:]
    assert [line.rsplit(" ", 1)[1] for line in out.decode().splitlines()[1:]] == ["failed", "passed", "failed"]
