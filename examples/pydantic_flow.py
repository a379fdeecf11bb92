"""A Pydantic AI agent in a Temporal workflow, with a sandbox for each problem."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from solving import Homework, Solved, solve
from temporalio import workflow

from emberpool.workflows.pydantic_ai_tools import sandbox_toolset
from emberpool.workflows.sandbox import Sandbox

with workflow.unsafe.imports_passed_through():
    from scripted import Answer, Run, Write, decide


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The scripted model. It is called in an activity; put your own model in its place."""
    parts = [part for message in messages for part in message.parts]
    asked = next(str(part.content) for part in parts if isinstance(part, UserPromptPart))
    step = decide(asked, [str(part.content) for part in parts if isinstance(part, ToolReturnPart)])
    match step:
        case Answer():
            return ModelResponse(parts=[TextPart(step.text)])
        case Run():
            return ModelResponse(parts=[ToolCallPart("bash", {"command": step.command})])
        case Write():
            return ModelResponse(parts=[ToolCallPart("write_file", {"path": step.path, "text": step.text})])


solver: Agent[None, str] = Agent(
    FunctionModel(scripted, model_name="scripted"),
    name="solver",
    toolsets=[sandbox_toolset()],
    capabilities=[TemporalDurability()],
)
"""Made once, before any sandbox: its tools find the one that is current."""


@workflow.defn
class PydanticHomework(PydanticAIWorkflow):
    """Solves all problems at once."""

    __pydantic_ai_agents__ = [solver]

    @workflow.run
    async def run(self, homework: Homework) -> list[Solved]:
        async def ask(sandbox: Sandbox, question: str) -> str:
            return (await solver.run(question)).output

        return await asyncio.gather(*[solve(homework, task, ask) for task in homework.tasks])
