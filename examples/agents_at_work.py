"""Two agent frameworks solve three HumanEval problems each, in sandboxes: run it beside `emberpool dev`.

    emberpool dev                                # prints the address
    python examples/agents_at_work.py            # TEMPORAL_ADDRESS names it, if it is not 127.0.0.1:7233

Needs the extras `emberpool[local,openai-agents,pydantic-ai]`. The model is scripted, so no account is needed.
"""

import asyncio
import os
import sys
import uuid
from typing import Any

from openai_flow import OpenAIHomework
from openai_model import openai_plugin
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from pydantic_flow import PydanticHomework
from solving import Homework, Solved
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool import EmberpoolPlugin
from emberpool.activities.names import DEFAULT_TASK_QUEUE
from emberpool.worker.demo.problems import problems


async def work(name: str, flow: Any, plugin: Any, tools: str) -> bool:
    """One framework's worker and workflow; True if every problem was solved."""
    address = os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233")
    # A plugin that brings a converter of its own comes first: ours leaves it in place.
    client = await Client.connect(address, plugins=[plugin, EmberpoolPlugin()])
    queue = f"{name}-{uuid.uuid4().hex[:8]}"
    homework = Homework(
        tasks=problems(3),
        profile=os.environ.get("EXAMPLE_PROFILE", "default"),
        caller=name,
        task_queue=os.environ.get("EMBERPOOL_TASK_QUEUE", DEFAULT_TASK_QUEUE),
        tools=tools,
    )
    async with Worker(client, task_queue=queue, workflows=[flow]):
        done: list[Solved] = await client.execute_workflow(flow.run, homework, id=queue, task_queue=queue)
    for one in done:
        print(
            f"{name}: {one.task_id} {'solved' if one.solved else 'NOT SOLVED'} on {one.pod}. {one.answer}", flush=True
        )
    return all(one.solved for one in done)


async def main() -> int:
    """All three ways, one after the other; exit status 0 if everything was solved."""
    solved = [
        await work("openai-functions", OpenAIHomework, openai_plugin(), "functions"),
        await work("openai-activities", OpenAIHomework, openai_plugin(), "activities"),
        await work("pydantic-ai", PydanticHomework, PydanticAIPlugin(), "functions"),
    ]
    return 0 if all(solved) else 1


if __name__ == "__main__":
    status = asyncio.run(main())
    sys.stdout.flush()
    os._exit(status)  # a process that used Temporal's client may crash as it exits: temporalio/sdk-python#300
