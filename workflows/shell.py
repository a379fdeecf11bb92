"""A shell of a sandbox that lives on between commands, as workflow code sees it."""

from datetime import timedelta

from temporalio.workflow import ActivityConfig

from emberpool.activities import names
from emberpool.activities.models import CallOutput
from emberpool.activities.process_models import OpenShellInput, RunInShellInput, RunInShellOutput
from emberpool.pool.model.command import DEFAULT_OUTPUT_LIMIT, DEFAULT_TIME_LIMIT_S, Command
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.shell import ShellResult
from emberpool.workflows.invoker import Invoker, new_name

MARGIN = timedelta(seconds=60)


class Shell:
    """What one command sets (folder, variables, functions, options), the next one finds."""

    def __init__(self, sandbox: Invoker, shell_id: str, program: str, cwd: str | None) -> None:
        """Use `Sandbox.shell`."""
        self._sandbox, self.shell_id = sandbox, shell_id
        self._program, self._cwd, self._opened = program, cwd, False

    @classmethod
    def of(cls, sandbox: Invoker, program: str, cwd: str | None, shell_id: str | None) -> "Shell":
        """A new shell, or one that was opened before if its id is given."""
        return cls(sandbox, shell_id or new_name(), program, cwd)

    async def run(
        self,
        text: str,
        *,
        time_limit: timedelta = timedelta(seconds=DEFAULT_TIME_LIMIT_S),
        output_limit: int = DEFAULT_OUTPUT_LIMIT,
    ) -> ShellResult:
        """Run a text in the shell, after those before it. Its time limit interrupts it; the result's `shell` says
        whether the shell lives on.

        Raises:
            ShellOver: the shell had ended; the text did not run.
        """
        given = checked(Command, shell=text, time_limit_s=time_limit.total_seconds(), output_limit=output_limit)
        await self.open()
        config: ActivityConfig = {"start_to_close_timeout": time_limit + MARGIN}
        output = await self._sandbox.invoke(
            names.RUN_IN_SHELL,
            lambda ref: RunInShellInput(
                ref=ref,
                shell_id=self.shell_id,
                text=text,
                time_limit_s=given.time_limit_s,
                output_limit=output_limit,
            ),
            RunInShellOutput,
            summary=f"shell: {given.title()}",
            queue=self._sandbox.task_queue,
            config=config,
        )
        if output.result is None:
            raise RuntimeError("an answered command has a result")
        return output.result

    async def open(self) -> None:
        """Start the shell now; otherwise its first command does. A known id starts nothing."""
        if self._opened:
            return
        await self._sandbox.invoke(
            names.OPEN_SHELL,
            lambda ref: OpenShellInput(ref=ref, shell_id=self.shell_id, program=self._program, cwd=self._cwd),
            CallOutput,
            summary=f"open a shell: {self._program}",
        )
        self._opened = True
