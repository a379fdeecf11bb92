"""Rollout: one episode of a policy on a task, in a sandbox, with a verified reward."""

from collections import Counter
from datetime import timedelta

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from emberpool.activities import names
from emberpool.activities.models import Nothing, RecordResultInput
from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.inputs import invalid_input
from emberpool.pool.model.rollout import (
    Action,
    PolicyInput,
    RolloutInput,
    RolloutOutcome,
    RolloutResult,
    RunStep,
    Turn,
    WriteStep,
)
from emberpool.workflows.dispatch import call
from emberpool.workflows.meter import count_rollout
from emberpool.workflows.plain import NOT_GIVEN, Plain, parsed
from emberpool.workflows.sandbox import Sandbox
from emberpool.workflows.searchable import make_searchable
from emberpool.workflows.verdict import carried_over, lay_out

SHOWN_BYTES = 4096
"""Of each stream, what a policy is shown per command: head and tail would be more than it reads."""

POLICY_RETRY = RetryPolicy(maximum_attempts=5, non_retryable_error_types=["PayloadsTooLarge", "ValidationError"])


@workflow.defn(name=names.ROLLOUT)
class Rollout:
    """Runs turns until the policy is done or `max_turns` is reached, then the verifier. Always returns a result."""

    _input: RolloutInput

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._commands: Counter[Outcome] = Counter()
        self._failures = 0
        self._truncated = 0

    @workflow.run
    async def run(self, given: Plain[RolloutInput] = NOT_GIVEN) -> RolloutResult:
        """A fault of the infrastructure is the outcome `infra` without a reward.

        Only a cancellation and a wrong input (InvalidInput) end otherwise.
        """
        task = self._input = parsed(RolloutInput, given)
        sandbox = self._open()
        outcome, reason = RolloutOutcome.INFRA, ""
        try:
            async with sandbox:
                await self._episode(sandbox)
                kept = await carried_over(sandbox, task.task.verifier)
                if not task.task.verifier.fresh:
                    outcome, reason = await self._verify(sandbox)
            if task.task.verifier.fresh:
                async with self._open() as judging:
                    await judging.bind(files=task.task.files, binding=task.binding())
                    await lay_out(judging, kept)
                    outcome, reason = await self._verify(judging)
        except EmberpoolError as error:
            outcome, reason = RolloutOutcome.INFRA, f"{type(error).__name__}: {error}"
        except ActivityError as error:
            if workflow.cancellation_reason() is not None:
                raise
            outcome, reason = RolloutOutcome.INFRA, _cause(error)
        result = self._result(sandbox, outcome, reason)
        make_searchable(sandbox, outcome.value)
        count_rollout(task.profile, outcome.value)
        if task.results_url is not None:
            await call(
                names.RECORD_RESULT,
                RecordResultInput(url=task.results_url, result=result),
                Nothing,
                summary=f"record {result.outcome}",
                config={"task_queue": names.control_queue(task.task_queue)},
            )
        return result

    def _open(self) -> Sandbox:
        task = self._input
        return Sandbox.open(
            profile=task.profile,
            caller=task.caller,
            image=task.image,
            reuse_key=task.reuse_key,
            fingerprint=task.binding().fingerprint(),
            hold=timedelta(seconds=task.hold_s),
            wait_timeout=timedelta(seconds=task.wait_timeout_s),
            task_queue=task.task_queue,
        )

    async def _episode(self, sandbox: Sandbox) -> None:
        task = self._input.task
        await sandbox.bind(files=task.files, binding=self._input.binding())
        make_searchable(sandbox)
        for _ in range(self._input.max_turns):
            action = await self._ask()
            self._turns.append(Turn(action=action, results=tuple(await self._act(sandbox, action))))
            self._show()
            if action.done:
                break

    async def _verify(self, sandbox: Sandbox) -> tuple[RolloutOutcome, str]:
        task = self._input.task
        verifier = task.verifier
        if verifier.files:
            await sandbox.bind(files=verifier.files)
        return self._judge(await sandbox.run(verifier.command, summary=f"verify: {task.id}"[:100]))

    async def _ask(self) -> Action:
        question = PolicyInput(
            rollout_id=self._input.rollout_id,
            task=self._input.task,
            turns=tuple(self._turns),
            seed=self._input.seed,
        )
        answer: object = await workflow.execute_activity(
            self._input.policy,
            question,
            result_type=object,  # an answer that cannot be decoded would fail the workflow's task for ever
            task_queue=self._input.policy_task_queue,
            start_to_close_timeout=timedelta(seconds=self._input.policy_timeout_s),
            retry_policy=POLICY_RETRY,
            summary=f"policy: turn {len(self._turns) + 1}",
        )
        try:
            return Action.model_validate(answer)
        except ValidationError as error:
            raise invalid_input(error, "action") from error

    async def _act(self, sandbox: Sandbox, action: Action) -> list[CommandResult]:
        shown: list[CommandResult] = []
        for step in action.steps:
            match step:
                case WriteStep():
                    await sandbox.write_file(step.file.path, step.file.text, mode=step.file.mode)
                case RunStep():
                    result = await sandbox.run(step.command)
                    self._commands[result.outcome] += 1
                    self._failures += result.outcome is Outcome.EXITED and result.exit_code != 0
                    self._truncated += result.truncated
                    shown.append(_shortened(result))
        return shown

    def _show(self) -> None:
        """What the policy says of its turns, for people who look at the workflow."""
        told = [turn.action.note or _steps(turn.action) for turn in self._turns]
        notes = "\n".join(f"{number}. {words}" for number, words in enumerate(told, start=1))
        workflow.set_current_details(f"**Task {self._input.task.id}**, turns so far:\n\n{notes}\n")

    def _judge(self, result: CommandResult) -> tuple[RolloutOutcome, str]:
        expected = self._input.task.verifier.expect_stdout
        if result.outcome is Outcome.TIMED_OUT:
            return RolloutOutcome.VERIFIER_TIMED_OUT, f"no verdict within {result.time_limit_s:g} s"
        if result.ok and (expected is None or expected in result.text.splitlines()):
            return RolloutOutcome.SOLVED, ""
        lines = (result.error_text or result.text).strip().splitlines()
        return RolloutOutcome.FAILED, (lines[-1] if lines else result.outcome.value)[:500]

    def _result(self, sandbox: Sandbox, outcome: RolloutOutcome, reason: str) -> RolloutResult:
        info = workflow.info()
        reward = None if outcome is RolloutOutcome.INFRA else float(outcome is RolloutOutcome.SOLVED)
        return RolloutResult(
            rollout_id=self._input.rollout_id,
            task_id=self._input.task.id,
            outcome=outcome,
            reward=reward,
            reason=reason[:1000],
            turns=len(self._turns),
            commands=dict(self._commands),
            failures=self._failures,
            truncated=self._truncated,
            source=sandbox.lease.source if sandbox.lease else None,
            ttfc_s=sandbox.ttfc_s,
            recycle=sandbox.recycled.outcome if sandbox.recycled else None,
            history_events=info.get_current_history_length(),
            duration_s=(workflow.now() - info.start_time).total_seconds(),
        )


def _steps(action: Action) -> str:
    """What an action does, for people, if the policy says nothing of it."""
    told = [f"write {one.file.path}" if isinstance(one, WriteStep) else one.command.title() for one in action.steps]
    return ", ".join(told) or "done"


def _shortened(result: CommandResult) -> CommandResult:
    return result.model_copy(update={"stdout": result.stdout[-SHOWN_BYTES:], "stderr": result.stderr[-SHOWN_BYTES:]})


def _cause(error: ActivityError) -> str:
    cause = error.cause
    kind = cause.type if isinstance(cause, ApplicationError) else type(cause).__name__
    return f"{error.activity_type} failed: {kind}: {cause}"
