"""A person finds a rollout or a call by caller, profile, source and outcome, where the namespace allows it."""

import asyncio
import uuid
from pathlib import Path

import pytest
from fixtures.command_line import clean_env
from fixtures.stack import PROFILE, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.policies import POLICY, task, two_tries
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.rollout import RolloutBatchInput
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.worker.stack.temporal_server import find_temporal
from emberpool.workflows.batch import RolloutBatch


async def call(client: Client, queue: str, caller: str, shell: str) -> CommandResult:
    """One tool call."""
    given = ToolCallInput(profile=PROFILE.name, caller=caller, command=Command(shell=shell), task_queue=queue)
    result: CommandResult = await client.execute_workflow(
        names.TOOL_CALL, given, id=f"found-{uuid.uuid4().hex[:8]}", task_queue=queue, result_type=CommandResult
    )
    return result


async def test_calls_are_found_by_caller_source_and_outcome(stack: EmbeddedStack) -> None:
    """The embedded stack registers the attributes; the workflow list then filters by them."""
    caller = f"caller-{uuid.uuid4().hex[:8]}"
    async with running_site(stack, site_settings(stack, search_attributes=True)) as site:
        assert (await call(site.client, site.queue, caller, "true")).ok
        assert (await call(site.client, site.queue, caller, "exit 3")).exit_code == 3

        async def listed(also: str) -> int:
            query = f"{names.SEARCH_CALLER} = '{caller}' AND {names.SEARCH_PROFILE} = '{PROFILE.name}' AND {also}"
            return (await site.client.count_workflows(query)).count

        async def all_found() -> bool:
            failed = f"{names.SEARCH_OUTCOME} = 'exited_non_zero' AND {names.SEARCH_SOURCE} = 'reuse'"
            return await listed(f"{names.SEARCH_OUTCOME} = 'exited'") == 1 and await listed(failed) == 1

        await wait_until(all_found)


async def test_a_batch_is_found_by_caller_and_profile(stack: EmbeddedStack, tmp_path: Path) -> None:
    """Whether its tasks came with it or lie in a file; while it runs, too."""
    caller, queue = f"trainer-{uuid.uuid4().hex[:8]}", f"policy-{uuid.uuid4().hex[:8]}"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(task(0).model_dump_json())
    batch = RolloutBatchInput(
        batch_id="inline",
        profile=PROFILE.name,
        caller=caller,
        policy=POLICY,
        policy_task_queue=queue,
        tasks=(task(0),),
    )
    from_file = batch.model_copy(update={"batch_id": "file", "tasks": (), "tasks_url": tasks.as_uri()})
    async with running_site(stack, site_settings(stack, search_attributes=True)) as site:

        async def listed() -> int:
            query = (
                f"WorkflowType = '{names.ROLLOUT_BATCH}' AND ExecutionStatus = 'Running' "
                f"AND {names.SEARCH_CALLER} = '{caller}' AND {names.SEARCH_PROFILE} = '{PROFILE.name}'"
            )
            return (await site.client.count_workflows(query)).count

        async def found() -> bool:
            return await listed() == 2

        started = [
            await site.client.start_workflow(
                RolloutBatch.run,
                one.model_copy(update={"task_queue": site.queue}),
                id=f"{caller}-{one.batch_id}",
                task_queue=site.queue,
            )
            for one in (batch, from_file)
        ]
        await wait_until(found)  # nobody answers for the policy yet, so both run
        async with Worker(site.client, task_queue=queue, activities=[two_tries]):
            assert [(await one.result()).rollouts for one in started] == [1, 1]


async def test_a_namespace_without_them_serves_all_the_same(
    stack: EmbeddedStack, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker says which are missing and how to register them; no workflow fails or hangs for it."""
    namespace = f"plain-{uuid.uuid4().hex[:8]}"
    argv = [str(find_temporal()), "operator", "namespace", "create", "--address", stack.temporal_address, namespace]
    process = await asyncio.create_subprocess_exec(*argv, env=clean_env())
    assert await process.wait() == 0
    settings = site_settings(stack, search_attributes=True, start_pool_managers=False)
    plugin = EmberpoolPlugin(settings)

    async def connected() -> bool:
        # A new namespace is known to all of the server's parts after a moment.
        client = await Client.connect(stack.temporal_address, namespace=namespace)
        return (await client.count_workflows("")).count == 0

    await wait_until(connected)
    client = await Client.connect(stack.temporal_address, namespace=namespace, plugins=[plugin])
    async with Worker(client, task_queue=settings.task_queue), running_site(stack, settings.model_copy(
        update={"start_pool_managers": True, "search_attributes": False, "task_queue": f"{settings.task_queue}-other"}
    )):  # fmt: skip
        assert (await call(client, settings.task_queue, "c", "true")).ok
    assert "temporal operator search-attribute create" in caplog.text and names.SEARCH_OUTCOME in caplog.text
