"""Pydantic AI: the tools of a sandbox as a toolset. Needs `emberpool[pydantic-ai]`; nothing imports this."""

from datetime import timedelta
from typing import Any

from pydantic_ai import FunctionToolset

from emberpool.workflows.sandbox import Sandbox
from emberpool.workflows.tools import current_tools, tools_for


def sandbox_toolset(
    sandbox: Sandbox | None = None,
    *,
    id: str = "sandbox",
    prefix: str = "",
    time_limit: timedelta = timedelta(seconds=60),
) -> FunctionToolset[Any]:
    """`bash`, `read_file` and `write_file` for an agent with TemporalDurability (or in a TemporalAgent).

    The tools run in the workflow and call emberpool's activities, so Pydantic AI makes no activity of its own for them.
    An agent is made once, before any sandbox: leave `sandbox` out, and they use the one that is current.
    """
    if sandbox is None:
        tools = current_tools(prefix=prefix, time_limit=time_limit)
    else:
        tools = tools_for(sandbox, prefix=prefix, time_limit=time_limit)
    toolset: FunctionToolset[Any] = FunctionToolset(id=id)
    for tool in tools:
        # One after the other: a model that writes and runs in one answer means it in that order.
        toolset.add_function(tool, metadata={"temporal": False}, sequential=True)
    return toolset
