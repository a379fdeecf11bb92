"""ToolClient: one idempotent tool call from a program outside Temporal, as one standalone activity."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from temporalio.client import ActivityFailureError, Client
from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy
from temporalio.exceptions import ActivityAlreadyStartedError

from emberpool.activities import names
from emberpool.pool.model.as_command import as_command
from emberpool.pool.model.binding import Binding, bound_fields
from emberpool.pool.model.command import DEFAULT_OUTPUT_LIMIT, Command, CommandResult
from emberpool.pool.model.errors import RequestMismatch
from emberpool.pool.model.ids import RequestId
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.rollout import TextFile
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.worker.remote.errors import typed_failure
from emberpool.workflows.binding import PREPARE
from emberpool.workflows.dispatch import HEARTBEAT_TIMEOUT, RETRY

SLACK = timedelta(minutes=2)
"""What an attempt may take beyond its wait in line and its command: starting a pod, transfer, the pod's reset."""


class ToolClient:
    """Tool calls of one caller on one profile. The client needs EmberpoolPlugin, for its models."""

    def __init__(
        self, client: Client, *, profile: str, caller: str, task_queue: str = names.DEFAULT_TASK_QUEUE
    ) -> None:
        self._client, self._profile, self._caller, self._task_queue = client, profile, caller, task_queue

    def activity_id(self, call_id: str) -> str:
        """The standalone activity's id: what people find in the Temporal UI. Callers do not share ids."""
        return f"emberpool-tool/{self._profile}/{self._caller}/{call_id}"

    async def run(
        self,
        call_id: str,
        command: Command | str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes = b"",
        time_limit: timedelta | None = None,
        output_limit: int = DEFAULT_OUTPUT_LIMIT,
        files: Sequence[TextFile] = (),
        image: str = "",
        reuse_key: str = "",
        binding: Binding | None = None,
        wait_timeout: timedelta = timedelta(minutes=5),
        priority: int = 0,
    ) -> CommandResult:
        """Run a command in a sandbox of its own; see `call`. `binding`: code, dependencies and secrets for it."""
        whole = as_command(command, env=env, cwd=cwd, stdin=stdin, time_limit=time_limit, output_limit=output_limit)
        given = checked(
            RunToolInput,
            profile=self._profile,
            caller=self._caller,
            command=whole,
            files=tuple(files),
            image=image,
            reuse_key=reuse_key,
            wait_timeout_s=wait_timeout.total_seconds(),
            priority=priority,
            **bound_fields(binding),
        )
        return (await self.call(call_id, given)).result

    async def call(self, call_id: str, given: RunToolInput) -> RunToolOutput:
        """Run it, or join the call of this id that runs, or get what the one that ended came to, its failure too.

        The server remembers ended calls for the namespace's retention time.

        Raises:
            RequestMismatch: the id belongs to a call with another input.
            InvalidInput, NoCapacity, SandboxLost: see emberpool.pool.model.errors.
        """
        activity_id = self.activity_id(call_id)
        try:
            output = await self._execute(activity_id, given)
        except ActivityFailureError as error:
            known = typed_failure(error)
            if known is None:
                raise
            raise known from error
        if output.digest != given.digest():
            raise RequestMismatch(RequestId(activity_id))
        return output

    async def _execute(self, activity_id: str, given: RunToolInput) -> RunToolOutput:
        attempt = timedelta(seconds=given.wait_timeout_s + given.command.time_limit_s) + SLACK
        if not given.binding().empty:
            attempt += PREPARE
        try:
            handle = await self._client.start_activity(
                names.RUN_TOOL,
                given,
                id=activity_id,
                task_queue=names.tools_queue(self._task_queue),
                result_type=RunToolOutput,
                start_to_close_timeout=attempt,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=RETRY,
                id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=ActivityIDReusePolicy.REJECT_DUPLICATE,
                summary=f"run: {given.command.title()}",
            )
        except ActivityAlreadyStartedError:
            handle = self._client.get_activity_handle(activity_id, result_type=RunToolOutput)
        output: RunToolOutput = await handle.result()
        return output
