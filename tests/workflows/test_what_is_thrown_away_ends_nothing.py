"""What an eviction leaves of a workflow is thrown away in the midst of another one: that ends nobody's sandbox."""

import asyncio
import uuid
from collections import Counter

from fixtures.stack import Site
from fixtures.waiting import wait_until
from scenarios.thrown_away import LEFT, Collecting, Working
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from emberpool.activities import names


def released(history: WorkflowHistory) -> int:
    """How many releases a workflow has scheduled."""
    return Counter(event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events)[
        names.RECYCLE_POD
    ]


async def test_only_its_own_workflow_releases_a_sandbox(site: Site) -> None:
    """The other one's history has no release that it never asked for; the sandbox works on, and is released once."""
    queue, flows = f"thrown-{uuid.uuid4().hex[:8]}", [Working, Collecting]
    runner = UnsandboxedWorkflowRunner()
    async with Worker(site.client, task_queue=queue, workflows=flows, workflow_runner=runner):
        working: WorkflowHandle[Working, list[str]] = await site.client.start_workflow(
            Working.run, site.plan(), id=f"{queue}-working", task_queue=queue
        )

        async def left() -> bool:
            return len(LEFT) == 2

        await wait_until(left)
        collecting = await site.client.start_workflow(Collecting.run, id=f"{queue}-collecting", task_queue=queue)
        assert await asyncio.wait_for(collecting.result(), 20) == 2
        assert released(await collecting.fetch_history()) == 0
        await working.signal(Working.end)
        assert await asyncio.wait_for(working.result(), 40) == ["one\n", "one\n", "0\n", "1\n"]
        assert released(await working.fetch_history()) == 3
        await site.settled()
