"""User workflows with tools for agents. Imported inside Temporal's sandbox, so nothing of pytest is here."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from emberpool.pool.model.errors import EmberpoolError
from emberpool.workflows.sandbox import Sandbox
from emberpool.workflows.tools import current_tools, tools_for
from scenarios.flows import Plan, Seen, opened

LIMIT = timedelta(seconds=30)


async def by_activity(name: str, argument: str, queue: str | None = None) -> str:
    """As a framework's `activity_as_tool` calls it: by name, without a queue of ours."""
    answer: str = await workflow.execute_activity(
        name, argument, result_type=str, start_to_close_timeout=LIMIT, task_queue=queue
    )
    return answer


@workflow.defn
class TwoCurrent:
    """Two sandboxes, each current in a task of its own, and their tools used in turn."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        async with opened(plan) as left, opened(plan) as right:
            await asyncio.gather(self._use(left, "left"), self._use(right, "right"))
            async with left.current():
                texts = [await by_activity("sandbox_bash", "cat who")]
                async with right.current():
                    texts.append(await by_activity("sandbox_bash", "cat who"))
                texts.append(await by_activity("sandbox_read", "who"))
            ours = [tool for sb in (left, right) for tool in tools_for(sb) if tool.__name__ == "read_file"]
            texts += [await tool("who") for tool in ours]
            return Seen(text=" ".join(text.strip() for text in texts))

    async def _use(self, sandbox: Sandbox, name: str) -> None:
        bash, _, write = current_tools()
        async with sandbox.current():
            for _ in range(3):
                await by_activity("sandbox_bash", f"echo {name} >> log")
                await bash(f"echo {name} >> log")
            await write("who", name)
            assert await bash("sort -u log") == name


@workflow.defn
class Outside:
    """Calls tools where no sandbox is current; returns the errors' types."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        types: list[str] = []
        async with opened(plan) as sandbox:
            async with sandbox.current():
                pass
            for name in ("sandbox_bash", "sandbox_read", "sandbox_write"):
                try:
                    await by_activity(name, "x", plan.task_queue)
                except ActivityError as error:
                    cause = error.cause
                    types.append(cause.type or "" if isinstance(cause, ApplicationError) else "")
            try:
                await current_tools()[0]("true")
            except EmberpoolError as error:
                types.append(type(error).__name__)
        return Seen(text=" ".join(types))


@workflow.defn
class Texts:
    """Runs tools whose calls go wrong in ways that a model can correct."""

    @workflow.run
    async def run(self, plan: Plan) -> Seen:
        async with opened(plan) as sandbox, sandbox.current():
            bash, read, write = tools_for(sandbox)
            texts = [
                await by_activity("sandbox_bash", "echo out; echo err >&2; exit 3"),
                await bash("kill -9 $$"),
                await by_activity("sandbox_read", "missing"),
                await read("missing"),
                await by_activity("sandbox_write", "not json"),
                await by_activity("sandbox_write", '{"path": "/work", "text": "x"}'),
                await write("/work", "x"),
                await bash("echo \0"),
                await bash("true"),
            ]
            return Seen(text="\n--\n".join(texts))


TOOL_FLOWS = (TwoCurrent, Outside, Texts)
