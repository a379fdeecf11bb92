"""OpenAI Agents SDK: the tools of a sandbox as its tools. Needs `emberpool[openai-agents]`; nothing imports this."""

from datetime import timedelta

from agents import FunctionTool, Tool, function_tool
from temporalio.openai_agents.workflow import activity_as_tool  # pyright: ignore[reportUnknownVariableType]

from emberpool.activities.agent_tools import AGENT_TOOLS
from emberpool.workflows.sandbox import Sandbox
from emberpool.workflows.tools import tools_for


def function_tools(sandbox: Sandbox, *, prefix: str = "", time_limit: timedelta = timedelta(seconds=60)) -> list[Tool]:
    """`bash`, `read_file` and `write_file` on one sandbox, run in the workflow.

    A lost sandbox ends the run as SandboxLost: the SDK's default would tell the model and go on without it.
    """
    made: list[FunctionTool] = [
        function_tool(tool, failure_error_function=None)
        for tool in tools_for(sandbox, prefix=prefix, time_limit=time_limit)
    ]
    return [*made]


def activity_tools(*, start_to_close_timeout: timedelta = timedelta(seconds=75)) -> list[Tool]:
    """`sandbox_bash`, `sandbox_read` and `sandbox_write` on the current sandbox, each call an activity of its own.

    A command gets four fifths of the time-out.
    """
    return [activity_as_tool(tool, start_to_close_timeout=start_to_close_timeout) for tool in AGENT_TOOLS]
