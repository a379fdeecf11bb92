"""Nothing that is too large for a payload of Temporal is retried without end: it is capped, or fails once by name."""

import json
import uuid
from pathlib import Path

import pytest
from fixtures.stack import Site
from scenarios.files import FilePlan, FileStep, MoveFiles, SendTooMuch
from scenarios.policies import task
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from emberpool.activities.batch import Batching
from emberpool.activities.blobs import Blobs
from emberpool.activities.models import LoadTasksInput
from emberpool.pool.model.command import MAX_OUTPUT_LIMIT, Command
from emberpool.pool.model.rollout import RolloutTask


async def test_large_results_are_capped(site: Site) -> None:
    """Both streams of 5 MB, at the default limit and at the highest, come back cut (pydantic/pydantic-ai#7157)."""
    shell = "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2"
    limits: tuple[dict[str, int], ...] = ({}, {"output_limit": MAX_OUTPUT_LIMIT})
    steps = tuple(FileStep(do="run", command=Command.model_validate({"shell": shell, **limit})) for limit in limits)
    # One at a time: the workflow's own result holds them too.
    for step in steps:
        seen = await site.client.execute_workflow(
            MoveFiles.run,
            FilePlan(profile="py", task_queue=site.queue, steps=(step,)),
            id=f"large-{uuid.uuid4().hex[:8]}",
            task_queue=site.queue,
        )
        assert seen.results[0].truncated and seen.results[0].stdout_bytes == 5_000_000


async def test_large_arguments_fail_once(site: Site) -> None:
    """Before anything is scheduled, naming the call, not as a workflow task that is tried for ever
    (pydantic/pydantic-ai#7164)."""
    handle = await site.client.start_workflow(
        SendTooMuch.run,
        FilePlan(profile="py", task_queue=site.queue, steps=()),
        id=f"too-much-{uuid.uuid4().hex[:8]}",
        task_queue=site.queue,
    )
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    cause = caught.value.cause
    assert isinstance(cause, ApplicationError) and cause.type == "InvalidInput"
    assert "emberpool.run_command" in cause.message and "upload" in cause.message
    history = await handle.fetch_history()
    assert not any(event.HasField("workflow_task_failed_event_attributes") for event in history.events)


async def test_pages_of_tasks_fit(tmp_path: Path) -> None:
    """A page of large tasks is shorter, none is lost in the count, and a task that fits in no payload is named."""
    one = task(0).model_dump(mode="json")
    large = json.dumps({**one, "prompt": "x" * 300_000})
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f"{large}\n" for _ in range(10)))
    load = Batching(1.0, Blobs(f"file://{tmp_path}")).load_tasks
    read: list[RolloutTask] = []
    while len(read) < 10:
        page = await load(LoadTasksInput(url=f"file://{path}", offset=len(read), limit=50, count=True))
        assert page.total == 10 and 0 < len(page.tasks) <= 3
        read += page.tasks
    path.write_text(json.dumps({**one, "prompt": "x" * 3_000_000}))
    with pytest.raises(ApplicationError, match="line 1"):
        await load(LoadTasksInput(url=f"file://{path}", offset=0, limit=50))
