"""Tools for agents find the sandbox that is current, and no other, and fail by a type of their own where there is
none."""

import uuid

from fixtures.stack import Site
from scenarios.tool_flows import TOOL_FLOWS, Outside, Texts, TwoCurrent
from temporalio.worker import Worker

from emberpool.activities.names import SANDBOX_HEADER
from emberpool.pool.model.claim import SandboxRef


async def test_two_sandboxes_never_mix(site: Site) -> None:
    """Two sandboxes current in two tasks at once, and nested: every call lands in its own. Replayed without a cache."""
    async with Worker(site.client, task_queue=f"{site.queue}-flows", workflows=TOOL_FLOWS, max_cached_workflows=0):
        handle = await site.client.start_workflow(
            TwoCurrent.run, site.plan(), id=f"two-{uuid.uuid4().hex[:8]}", task_queue=f"{site.queue}-flows"
        )
        assert (await handle.result()).text == "left right left left right"
        history = await handle.fetch_history()
    headers = [
        event.activity_task_scheduled_event_attributes.header.fields[SANDBOX_HEADER]
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
        and SANDBOX_HEADER in event.activity_task_scheduled_event_attributes.header.fields
    ]
    refs = {SandboxRef.model_validate_json(header.data).request_id for header in headers}
    assert len(refs) == 2
    assert not any(site.settings.pool_key().hex().encode() in header.data for header in headers)
    await site.settled()


async def test_without_a_current_sandbox_tools_fail_by_type(site: Site) -> None:
    """Outside `async with sandbox.current()` each tool ends with NoCurrentSandbox and is not retried."""
    async with Worker(site.client, task_queue=f"{site.queue}-flows", workflows=TOOL_FLOWS):
        seen = await site.client.execute_workflow(
            Outside.run, site.plan(), id=f"out-{uuid.uuid4().hex[:8]}", task_queue=f"{site.queue}-flows"
        )
    assert seen.text.split() == ["NoCurrentSandbox"] * 4


async def test_what_a_model_can_correct_is_text(site: Site) -> None:
    """Failing commands, missing files and bad arguments come back as text, from both kinds of tools."""
    async with Worker(site.client, task_queue=f"{site.queue}-flows", workflows=TOOL_FLOWS):
        seen = await site.client.execute_workflow(
            Texts.run, site.plan(), id=f"text-{uuid.uuid4().hex[:8]}", task_queue=f"{site.queue}-flows"
        )
    texts = seen.text.split("\n--\n")
    assert texts[0] == "out\n[stderr]\nerr\n[exit status 3]"
    assert texts[1] == "[killed by signal 9]"
    assert all("missing" in text and "not_found" in text for text in texts[2:4])
    assert "JSON" in texts[4]
    assert all("/work" in text and text.startswith("[error:") for text in texts[5:7])
    assert "NUL" in texts[7] and texts[8] == "[exit status 0, no output]"
