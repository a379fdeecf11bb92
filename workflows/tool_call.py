"""ToolCall: one command in a sandbox of its own, as a workflow. Starts from plain JSON too."""

from datetime import timedelta

from pydantic import Field
from temporalio import workflow

from emberpool.activities import names
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.frozen import Strict
from emberpool.pool.model.rollout import TextFile
from emberpool.workflows.sandbox import Sandbox


class ToolCallInput(Strict):
    """Input of the workflow EmberpoolToolCall."""

    profile: str
    caller: str = Field(min_length=1)
    command: Command
    files: tuple[TextFile, ...] = ()
    """Written before the command runs."""
    image: str = ""
    reuse_key: str = ""
    wait_timeout_s: float = Field(default=300.0, gt=0)
    task_queue: str = names.DEFAULT_TASK_QUEUE


@workflow.defn(name=names.TOOL_CALL)
class ToolCall:
    """Runs one command and returns its end; a failing command is a result, not a failed workflow."""

    @workflow.run
    async def run(self, call: ToolCallInput) -> CommandResult:
        """Open, bind the files if there are any, run, leave."""
        async with Sandbox.open(
            profile=call.profile,
            caller=call.caller,
            image=call.image,
            reuse_key=call.reuse_key,
            wait_timeout=timedelta(seconds=call.wait_timeout_s),
            task_queue=call.task_queue,
        ) as sandbox:
            if call.files:
                await sandbox.bind(files=call.files)
            return await sandbox.run(call.command)
