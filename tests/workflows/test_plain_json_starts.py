"""Workflows start from plain JSON with Temporal's own command line, and a wrong input fails once and says why."""

import asyncio
import json
import subprocess
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from fixtures.command_line import clean_env
from fixtures.stack import Site, running_site, site_settings
from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ApplicationError

from emberpool.activities import names
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.worker.stack.temporal_server import find_temporal
from emberpool.workflows.tool_call import ToolCall

COMMAND = {"shell": "echo $GREETING; cat in.txt", "env": {"GREETING": "hello"}}
CALL: Mapping[str, Any] = {"profile": "py", "caller": "cli", "command": COMMAND}
FAILED_S = 60.0
"""A workflow whose task fails is tried again for ever."""
TASK = {"id": "t/1", "verifier": {"command": {"argv": ["true"]}}}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """One for all tests here, each of which has leases of its own."""
    async with running_site(stack, site_settings(stack)) as running:
        yield running


def start(site: Site, workflow: str, *inputs: str) -> str:
    """`temporal workflow start`, as a person types it; the workflow's id."""
    workflow_id = f"plain-{uuid.uuid4().hex[:8]}"
    given = [part for text in inputs for part in ("--input", text)]
    argv = [str(find_temporal()), "workflow", "start", "--type", workflow, "--task-queue", site.queue]
    where = ["--workflow-id", workflow_id, "--address", site.client.service_client.config.target_host]
    subprocess.run([*argv, *where, *given], check=True, capture_output=True, timeout=60.0, env=clean_env())
    return workflow_id


def failed_tasks(history: WorkflowHistory) -> list[str]:
    """What failed workflow tasks said. UnhandledCommand is no failure: something happened while the task ran."""
    failed = [event for event in history.events if event.HasField("workflow_task_failed_event_attributes")]
    told = [event.workflow_task_failed_event_attributes.failure.message for event in failed]
    return [message for message in told if message != "UnhandledCommand"]


async def failure(site: Site, workflow_id: str) -> ApplicationError:
    """What the workflow fails with; no task of it may have failed."""
    handle = site.client.get_workflow_handle(workflow_id)
    with pytest.raises(WorkflowFailureError) as raised:
        async with asyncio.timeout(FAILED_S):
            await handle.result()
    assert failed_tasks(await handle.fetch_history()) == []
    assert isinstance(raised.value.cause, ApplicationError)
    return raised.value.cause


async def test_a_tool_call_starts_from_the_command_line(site: Site) -> None:
    """Plain JSON in, the command's end out as JSON, output in base64."""
    files = [{"path": "in.txt", "text": "from a file\n"}]
    call = json.dumps({**CALL, "files": files, "task_queue": site.queue})
    handle = site.client.get_workflow_handle(start(site, names.TOOL_CALL, call), result_type=CommandResult)
    result = await handle.result()
    assert (result.ok, result.text) == (True, "hello\nfrom a file\n")


async def test_python_callers_still_give_a_model(site: Site) -> None:
    """The typed start of the workflow's own class takes the model."""
    call = ToolCallInput.model_validate({**CALL, "command": {"argv": ["true"]}, "task_queue": site.queue})
    name = f"typed-{uuid.uuid4().hex[:8]}"
    result = await site.client.execute_workflow(ToolCall.run, call, id=name, task_queue=site.queue)
    assert result.ok


@pytest.mark.parametrize(
    ("workflow", "given", "told"),
    [
        (names.TOOL_CALL, {**CALL, "comand": {}}, "comand: no such field; there are: profile, caller, command"),
        (names.TOOL_CALL, {"caller": "a", "command": COMMAND}, "profile: is missing"),
        (names.TOOL_CALL, {**CALL, "command": {"argv": "ls"}}, "command.argv: "),
        (names.TOOL_CALL, {**CALL, "command": {"shell": "a", "argv": ["b"]}}, "command: give either argv"),
        (names.TOOL_CALL, {**CALL, "command": {**COMMAND, "time_limit_s": -1}}, "command.time_limit_s: "),
        (names.TOOL_CALL, "a text", "input: "),
        (names.TOOL_CALL, None, "input: is missing"),
        (names.ROLLOUT, {"rollout_id": "r", "task": {"id": "t"}, "profile": "py"}, "task.verifier: is missing"),
        (names.ROLLOUT_BATCH, {"batch_id": "b", "profile": "py", "caller": "a", "policy": "p"}, "tasks: give either"),
    ],
)
async def test_a_wrong_input_fails_once_and_names_the_field(
    site: Site, workflow: str, given: object, told: str
) -> None:
    """The workflow ends as InvalidInput, not retryable, with field and problem as details; no task is retried."""
    error = await failure(site, start(site, workflow, *([] if given is None else [json.dumps(given)])))
    assert (error.type, error.non_retryable) == ("InvalidInput", True)
    assert told in error.message, error.message
    field, problem = error.details
    assert f"{field}: {problem}" in error.message


@pytest.mark.parametrize("workflow", [names.TOOL_CALL, names.ROLLOUT, names.ROLLOUT_BATCH])
async def test_several_inputs_fail_once(site: Site, workflow: str) -> None:
    """A field per --input, as one may type it at first: the workflow ends at once and says how to do it."""
    error = await failure(site, start(site, workflow, '{"profile": "py"}', '{"caller": "a"}', '"b"'))
    assert (error.type, error.non_retryable) == ("InvalidInput", True)
    assert "input: 3 were given: give one JSON object" in error.message


async def test_an_error_of_the_sandbox_is_typed_too(site: Site) -> None:
    """A profile that nobody serves reaches a caller of any language as InvalidInput with its field."""
    call = json.dumps({**CALL, "profile": "nope", "task_queue": site.queue})
    error = await failure(site, start(site, names.TOOL_CALL, call))
    assert (error.type, error.details[0]) == ("InvalidInput", "profile")


async def test_a_rollout_and_a_batch_start_from_plain_json(site: Site) -> None:
    """Both take plain JSON; without a worker for the policy a rollout has no reward, and says so."""
    plain = {"profile": "py", "caller": "cli", "policy": "nobody.serves_this", "task_queue": site.queue}
    quick = {"policy_timeout_s": 1.0}
    handle = site.client.get_workflow_handle(
        start(site, names.ROLLOUT, json.dumps({"rollout_id": "r-1", "task": TASK, **plain, **quick}))
    )
    await handle.cancel()
    batch = {"batch_id": "b-1", "tasks": [TASK], **plain}
    running = site.client.get_workflow_handle(start(site, names.ROLLOUT_BATCH, json.dumps(batch)))
    await running.cancel()
    for each in (handle, running):
        with pytest.raises(WorkflowFailureError):
            await each.result()
        assert failed_tasks(await each.fetch_history()) == []
