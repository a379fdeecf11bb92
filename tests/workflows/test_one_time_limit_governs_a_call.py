"""A call's own time limit is the only one that counts: Temporal's limits of the activity that carries it lie beyond,
however the call is made (daytonaio/daytona#4750: a limit of the client cut commands short of theirs)."""

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from fixtures.stack import Site
from fixtures.waiting import wait_until
from scenarios.process_flows import Patient
from temporalio.api.common.v1 import ActivityType
from temporalio.client import ActivityExecutionDescription, WorkflowHandle

from emberpool.activities import names
from emberpool.worker.remote.session import RemoteSandbox
from emberpool.worker.remote.tool import ToolClient

LIMIT = timedelta(seconds=900)
"""More than the five minutes of an activity that names no limit."""
LONG_CALLS = {
    names.RUN_COMMAND,
    names.RUN_IN_SHELL,
    names.UPLOAD,
    names.DOWNLOAD,
    names.DOWNLOAD_OUTPUT,
    names.WAIT_FOR_PROCESS,
    names.SAVE_CHECKPOINT,
}


async def test_no_activity_is_shorter_than_its_call(site: Site, tmp_path: Path) -> None:
    """In a workflow: a command, a shell's, transfers, the wait for a process, a checkpoint, each of 900 s."""
    (tmp_path / "in").write_text("in")
    plan = site.plan(commands=(f"file://{tmp_path}",), time_limit_s=LIMIT.total_seconds())
    handle = await site.client.start_workflow(Patient.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)
    await handle.result()
    limits = await limits_in(handle)
    assert limits.keys() >= LONG_CALLS, LONG_CALLS - limits.keys()
    assert all(limits[name] >= LIMIT for name in LONG_CALLS), limits


async def test_nor_from_outside(site: Site, tmp_path: Path) -> None:
    """The same of a tool call, of a session's command, and of its transfers."""
    (tmp_path / "in").write_text("in")
    tools, call_id = ToolClient(site.client, profile="py", caller="ann", task_queue=site.queue), uuid.uuid4().hex
    await tools.run(call_id, "true", time_limit=LIMIT)
    described = await site.client.get_activity_handle(tools.activity_id(call_id)).describe()
    assert alone(described) >= LIMIT
    async with RemoteSandbox.open(site.client, profile="py", caller="ann", task_queue=site.queue) as sandbox:
        await sandbox.run("true", time_limit=LIMIT)
        await sandbox.upload(f"file://{tmp_path}/in", "in", time_limit=LIMIT)
        await sandbox.download("in", f"file://{tmp_path}/out", time_limit=LIMIT)
    session = site.client.get_workflow_handle(sandbox.session_id)
    assert (await limits_in(session))[names.RUN_COMMAND] >= LIMIT
    for name in (names.UPLOAD, names.DOWNLOAD):
        assert alone(await newest(site, name)) >= LIMIT, name


async def limits_in(handle: WorkflowHandle[Any, Any]) -> dict[str, timedelta]:
    """The shortest limit of a running attempt that a workflow gave each kind of activity."""
    limits: dict[str, timedelta] = {}
    for event in (await handle.fetch_history()).events:
        about = event.activity_task_scheduled_event_attributes
        if event.HasField("activity_task_scheduled_event_attributes"):
            kind: ActivityType = about.activity_type
            given = [about.start_to_close_timeout, about.schedule_to_close_timeout]
            shortest = min(one.ToTimedelta() for one in given if one.ToTimedelta())
            limits[kind.name] = min(shortest, limits.get(kind.name, shortest))
    return limits


async def newest(site: Site, name: str) -> ActivityExecutionDescription:
    """The standalone activity of that name on the site's queues; lists of the server may lag behind."""
    found: list[ActivityExecutionDescription] = []

    async def listed() -> bool:
        query = f"ActivityType = '{name}' AND TaskQueue = '{site.queue}'"
        async for one in site.client.list_activities(query, limit=1):
            found.append(await site.client.get_activity_handle(one.activity_id).describe())
        return bool(found)

    await wait_until(listed)
    return found[-1]


def alone(described: ActivityExecutionDescription) -> timedelta:
    """The shortest limit of a standalone activity."""
    given = [described.start_to_close_timeout, described.schedule_to_close_timeout]
    return min(one for one in given if one)
