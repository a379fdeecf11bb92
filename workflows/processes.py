"""Background processes of a sandbox, shells and ports, as workflow code sees them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta

from temporalio.workflow import ActivityConfig

from emberpool.activities import names
from emberpool.activities.models import CallInput, CallOutput
from emberpool.activities.process_models import (
    MAX_READ_WAIT_S,
    ListProcessesOutput,
    ReadOutputInput,
    ReadOutputOutput,
    StartProcessInput,
    SteerProcessInput,
    SteerProcessOutput,
    WaitForProcessInput,
    WaitForProcessOutput,
)
from emberpool.pool.model.as_command import as_command
from emberpool.pool.model.command import DEFAULT_OUTPUT_LIMIT, Command, CommandResult
from emberpool.pool.model.errors import ProcessUnknown
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.process import InputPiece, InputState, ProcessLine, process_execution
from emberpool.pool.model.stream import MAX_PIECE, Cursor, OutputRead
from emberpool.workflows.invoker import Invoker, new_name

MARGIN = timedelta(seconds=60)
"""What an activity may take beyond the time that it waits."""


class Process:
    """A background process, running or ended. Its id finds it again from another run or workflow of the sandbox."""

    def __init__(self, sandbox: Invoker, process_id: str) -> None:
        self._sandbox, self.process_id = sandbox, process_id
        self._written = 0

    async def logs(self, cursor: Cursor | None = None, *, wait: timedelta = timedelta(0)) -> OutputRead:
        """Its output from a cursor on, at most 512 KiB of each stream; the answer's `cursor` is where to go on.

        With `wait`, an answer without anything new comes only after that long.

        Raises:
            ProcessUnknown: it was never started in this sandbox.
        """
        execution = process_execution(self.process_id)
        seen = await read_output(self._sandbox, execution, cursor or Cursor(), wait)
        if not seen.known:
            raise ProcessUnknown(self.process_id)
        return seen.output

    async def follow(self, cursor: Cursor | None = None) -> AsyncGenerator[OutputRead]:
        """Every piece of its output as it comes, to its end. Each is an activity, and its bytes go into the history:
        for output of megabytes use a file, or follow from outside."""
        at = cursor or Cursor()
        while True:
            seen = await self.logs(at, wait=timedelta(seconds=20))
            at = seen.cursor
            yield seen
            if seen.complete:
                return

    async def wait(self, at_most: timedelta) -> CommandResult | None:
        """How it ended; None if it still runs after `at_most`. Nothing happens to it if the wait is cancelled."""
        output = await self._sandbox.invoke(
            names.WAIT_FOR_PROCESS,
            lambda ref: WaitForProcessInput(ref=ref, process_id=self.process_id, wait_s=at_most.total_seconds()),
            WaitForProcessOutput,
            summary=f"wait for {self.process_id}",
            queue=names.wait_queue(self._sandbox.task_queue),
            config={"start_to_close_timeout": at_most + MARGIN},
        )
        return output.result

    async def write(self, data: bytes, *, end: bool = False) -> InputState:
        """Write to its stdin, which must have been opened at the start; `end` closes it. What a process that does not
        read has not taken within ten seconds is told by `accepted`: bytes of all that were written so far.
        """
        piece = InputPiece(data=data, offset=self._written, end=end)
        output = await self._steer("write to", write=piece)
        state = output.input or InputState(accepted=self._written)
        self._written = state.accepted
        return state

    async def signal(self, number: int) -> bool:
        """Send a signal to its process group; False if it has ended."""
        return (await self._steer("signal", signal=number)).reached

    async def resize(self, rows: int, cols: int) -> bool:
        """Set the size of its terminal; False if it has none."""
        return (await self._steer("resize", rows=rows, cols=cols)).reached

    async def stop(self) -> CommandResult:
        """Kill it and everything that it started; how it ended."""
        result = (await self._steer("stop", kill=True)).result
        if result is None:
            raise RuntimeError("a killed process has a result")
        return result

    async def _steer(self, what: str, **fields: object) -> SteerProcessOutput:
        return await self._sandbox.invoke(
            names.STEER_PROCESS,
            lambda ref: SteerProcessInput.model_validate({"ref": ref, "process_id": self.process_id, **fields}),
            SteerProcessOutput,
            summary=f"{what} {self.process_id}",
        )


class Processes:
    """The background processes of a sandbox: they need no activity while they run, and end with the lease."""

    def __init__(self, sandbox: Invoker) -> None:
        self._sandbox = sandbox

    async def start(
        self,
        command: Command | str | Sequence[str],
        *,
        process_id: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        stdin_open: bool = False,
        output_limit: int = DEFAULT_OUTPUT_LIMIT,
    ) -> Process:
        """Start a process and return at once. A known `process_id` starts nothing and finds that process.

        Args:
            stdin_open: `Process.write` follows; otherwise it reads `stdin` and end-of-file.
            output_limit: bytes kept per stream for who reads later; the process never waits for a reader.
        """
        whole = as_command(command, env=env, cwd=cwd, stdin=stdin, time_limit=None, output_limit=output_limit)
        name = process_id or new_name()
        await self._sandbox.invoke(
            names.START_PROCESS,
            lambda ref: StartProcessInput(ref=ref, process_id=name, command=whole, stdin_open=stdin_open),
            CallOutput,
            summary=f"start: {whole.title()}",
        )
        return Process(self._sandbox, name)

    def get(self, process_id: str) -> Process:
        """A process that was started before, perhaps by another run."""
        return Process(self._sandbox, process_id)

    async def list(self) -> tuple[ProcessLine, ...]:
        """All that were started in this sandbox, ended ones too, oldest first."""
        output = await self._sandbox.invoke(
            names.LIST_PROCESSES, lambda ref: CallInput(ref=ref), ListProcessesOutput, summary="list processes"
        )
        return output.processes


async def read_output(
    sandbox: Invoker, execution: ExecutionId, cursor: Cursor, wait: timedelta = timedelta(0), limit: int = MAX_PIECE
) -> ReadOutputOutput:
    """Read on in the output of any execution of the sandbox."""
    wait_s = min(MAX_READ_WAIT_S, max(0.0, wait.total_seconds()))
    config: ActivityConfig = {"start_to_close_timeout": timedelta(seconds=wait_s) + MARGIN}
    return await sandbox.invoke(
        names.READ_OUTPUT,
        lambda ref: ReadOutputInput(ref=ref, execution_id=execution, cursor=cursor, wait_s=wait_s, limit=limit),
        ReadOutputOutput,
        summary="read output",
        queue=names.wait_queue(sandbox.task_queue),
        config=config,
    )
