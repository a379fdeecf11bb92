"""An agent of the OpenAI Agents SDK in a Temporal workflow, with a sandbox for each problem."""

import asyncio

from agents import Agent, Runner, Tool
from solving import Homework, Solved, solve
from temporalio import workflow

from emberpool.workflows.openai_tools import activity_tools, function_tools
from emberpool.workflows.sandbox import Sandbox


@workflow.defn
class OpenAIHomework:
    """Solves all problems at once."""

    @workflow.run
    async def run(self, homework: Homework) -> list[Solved]:
        async def ask(sandbox: Sandbox, question: str) -> str:
            tools: list[Tool] = activity_tools() if homework.tools == "activities" else function_tools(sandbox)
            agent = Agent[None](name="solver", instructions="Solve the problem with your tools.", tools=tools)
            result = await Runner.run(agent, question)
            return str(result.final_output)

        return await asyncio.gather(*[solve(homework, task, ask) for task in homework.tasks])
