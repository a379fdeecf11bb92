"""However one of our activities is scheduled, it has a heartbeat time-out: without one, progress, cancellation and the
detection of dead workers do nothing (PostHog/posthog#17642)."""

import uuid

import pytest
from fixtures.processes import running
from fixtures.stack import Site
from fixtures.waiting import wait_until
from scenarios.ends import Bare
from temporalio.client import WorkflowFailureError


async def test_default_options_are_enough_to_be_cancelled(site: Site) -> None:
    """A command by the handle with its time-out taken out, by the activity's bare name, and by a tool's: each is
    scheduled with one, and all are dead once their workflow was cancelled."""
    commands = ("sleep 5401", "sleep 5402", "sleep 5403")
    plan = site.plan(commands=commands, time_limit_s=900)
    handle = await site.client.start_workflow(Bare.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)

    async def all_run() -> bool:
        return running().issuperset(commands)

    await wait_until(all_run)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    await site.settled()
    assert running().isdisjoint(commands)
    limits = {
        f"{about.activity_id} {about.activity_type.name}": about.heartbeat_timeout.ToTimedelta().total_seconds()
        for event in (await handle.fetch_history()).events
        if (about := event.activity_task_scheduled_event_attributes).activity_id
    }
    assert len(limits) >= 5 and all(0 < seconds <= 60 for seconds in limits.values()), limits
