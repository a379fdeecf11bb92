"""A sandbox's changes outlive it: it is resumed later, branched, and never restored as something else."""

import asyncio
import os
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.checkpoints import CHECKPOINT_FLOWS, CheckpointPlan, CheckpointSeen, RunAndSave
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.activities.models import CallOutput
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
    """Three sandboxes start from one state at once, each in a pod of its own, and none sees what another one does."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "EXAMPLE_PROFILE": "py"}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "EMBERPOOL_TASK_QUEUE": site.queue}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE), env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(90):
        out, errors = await process.communicate()
    assert process.returncode == 0, out.decode() + errors.decode()[-2000:]
    assert [line.rsplit(" ", 1)[1] for line in out.decode().splitlines()[1:]] == ["failed", "passed", "failed"]
    restored = await pods_restored(site)
    assert len(restored) == len(set(restored)) == 3, restored


async def pods_restored(site: Site) -> list[str]:
    """The pods in which a checkpoint was restored, on behalf of the example; lists of the server may lag behind."""
    runs: list[str] = []

    async def listed() -> bool:
        async for run in site.client.list_workflows("WorkflowType = 'Branches'"):
            history = await site.client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
            (given,) = history.events[0].workflow_execution_started_event_attributes.input.payloads
            if site.queue.encode() in given.data:
                runs.append(run.id)
                pods.extend(pods_of(history.events))
        return bool(runs)

    pods: list[str] = []
    await wait_until(listed)
    return pods


def pods_of(events: Iterable[HistoryEvent]) -> list[str]:
    """The pod of each restore that was done."""
    pods: list[str] = []
    scheduled: set[int] = set()
    for event in events:
        kind = event.activity_task_scheduled_event_attributes.activity_type.name
        done = event.activity_task_completed_event_attributes
        if kind == names.RESTORE_CHECKPOINT:
            scheduled.add(event.event_id)
        elif done.scheduled_event_id in scheduled:
            output = CallOutput.model_validate_json(done.result.payloads[0].data)
            pods += [output.lease.pod] if output.lease else []
    return pods
