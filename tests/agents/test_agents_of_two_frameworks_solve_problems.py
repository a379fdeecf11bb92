"""Agents of the OpenAI Agents SDK and of Pydantic AI, the real packages with a scripted model, each write, run, read
the failure, fix and verify, several sandboxes at once (temporalio/sdk-python#1718)."""

import uuid
from collections import Counter
from typing import Any

import pytest
from fixtures.agents import agent_site
from openai_flow import OpenAIHomework
from openai_model import openai_plugin
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from pydantic_flow import PydanticHomework
from solving import Homework, Solved
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer

from emberpool.worker.demo.problems import problems
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack

WAYS: dict[str, tuple[Any, Any, str]] = {
    "openai-functions": (OpenAIHomework, openai_plugin, "functions"),
    "openai-activities": (OpenAIHomework, openai_plugin, "activities"),
    "pydantic-ai": (PydanticHomework, PydanticAIPlugin, "functions"),
}
FAILURES = ("AssertionError", "SyntaxError", "exit status 3")
"""What the agent read of each problem's first candidate."""


def scheduled(history: WorkflowHistory) -> Counter[str]:
    """How often each activity was scheduled."""
    return Counter(
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    )


@pytest.mark.parametrize("way", WAYS)
async def test_three_problems_at_once(stack: EmbeddedStack, way: str) -> None:
    """Three problems in three sandboxes at once: each is solved after reading its own failure, on a pod of its own,
    with no call scheduled twice; and the history replays."""
    flow, plugin, tools = WAYS[way]
    async with agent_site(stack, plugin(), [flow]) as (site, client, queue):
        homework = Homework(tasks=problems(3), profile="py", caller=way, task_queue=site.queue, tools=tools)
        handle: WorkflowHandle[Any, list[Solved]] = await client.start_workflow(
            flow.run, homework, id=f"{way}-{uuid.uuid4().hex[:8]}", task_queue=queue
        )
        done = await handle.result()
        assert [one.task_id for one in done] == ["HumanEval/0", "HumanEval/1", "HumanEval/2"]
        assert all(one.solved for one in done), done
        for one, failure in zip(done, FAILURES, strict=True):
            assert one.answer.startswith(f"{one.task_id}: fixed ") and failure in one.answer
        assert len({one.pod for one in done}) == 3
        history = await handle.fetch_history()
        ran = scheduled(history)
        if tools == "activities":
            assert (ran["sandbox_bash"], ran["sandbox_write"], ran["emberpool.run_command"]) == (6, 6, 3)
        else:
            assert (ran["emberpool.run_command"], ran["emberpool.write_file"]) == (9, 6)
        assert ran["emberpool.recycle_pod"] == 3, history.to_json()
        await site.settled()
    await Replayer(workflows=[flow], plugins=[plugin(), EmberpoolPlugin()]).replay_workflow(history)
