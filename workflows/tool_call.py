"""ToolCall: one command in a sandbox of its own, as a workflow. Starts from plain JSON too."""

from datetime import timedelta

from temporalio import workflow

from emberpool.activities import names
from emberpool.activities.errors import to_temporal
from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.session import SessionWhere
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.workflows.plain import NOT_GIVEN, Plain, parsed
from emberpool.workflows.sandbox import Sandbox
from emberpool.workflows.searchable import make_searchable

__all__ = ["ToolCall", "ToolCallInput"]


@workflow.defn(name=names.TOOL_CALL)
class ToolCall:
    """Runs one command and returns its end; a failing command is a result, not a failed workflow."""

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None

    @workflow.query(name=names.SESSION_WHERE)
    def where(self) -> SessionWhere:
        """Where the command's output can be followed while it runs."""
        return SessionWhere(ref=self._sandbox.ref if self._sandbox is not None else None)

    @workflow.run
    async def run(self, call: Plain[ToolCallInput] = NOT_GIVEN) -> CommandResult:
        """Open, bind the files if there are any, run, leave."""
        given = parsed(ToolCallInput, call)
        try:
            return await self._call(given)
        except EmberpoolError as error:
            # With its fields as details, so that a caller of any language can tell one from another.
            raise to_temporal(error) from error

    async def _call(self, call: ToolCallInput) -> CommandResult:
        binding = call.binding()
        async with Sandbox.open(
            profile=call.profile,
            caller=call.caller,
            image=call.image,
            reuse_key=call.reuse_key,
            fingerprint=binding.fingerprint(),
            wait_timeout=timedelta(seconds=call.wait_timeout_s),
            task_queue=call.task_queue,
        ) as sandbox:
            self._sandbox = sandbox
            try:
                if call.files or not binding.empty:
                    await sandbox.bind(files=call.files, binding=binding)
                result = await sandbox.run(call.command)
            except EmberpoolError as error:
                make_searchable(sandbox, type(error).__name__)
                raise
            failed = result.outcome is Outcome.EXITED and not result.ok
            make_searchable(sandbox, "exited_non_zero" if failed else result.outcome.value)
            return result
