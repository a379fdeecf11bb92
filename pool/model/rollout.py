"""Rollouts: a task, the actions that a policy takes on it, and a result that never confuses failure with reward 0."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from emberpool.pool.model.binding import Binding, Bundle, Requirements, SecretRef, Secrets
from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command, CommandResult, Outcome
from emberpool.pool.model.frozen import Frozen, Strict
from emberpool.pool.model.recycle import RecycleOutcome


class TextFile(Strict):
    """A text file to put into the sandbox."""

    path: str
    """In the sandbox; a relative path is taken from /work."""
    text: str
    mode: int = 0o644


class WriteStep(Strict):
    """A tool call that writes a file."""

    kind: Literal["write"] = "write"
    file: TextFile


class RunStep(Strict):
    """A tool call that runs a command."""

    kind: Literal["run"] = "run"
    command: Command


ToolStep = Annotated[WriteStep | RunStep, Field(discriminator="kind")]


class Action(Strict):
    """What a policy wants next: tool calls in order, or nothing more."""

    steps: tuple[ToolStep, ...] = ()
    done: bool = False
    """True: the policy has finished; the verifier runs after these steps."""
    note: str = ""
    """One line for people, shown in the Temporal UI."""


class Turn(Frozen):
    """One action and what its commands came to (output shortened to what a policy reads)."""

    action: Action
    results: tuple[CommandResult, ...] = ()


class Verifier(Strict):
    """Decides a rollout's reward by a command, run after the policy is done."""

    command: Command
    files: tuple[TextFile, ...] = ()
    """Written after the policy's last step, so that the policy cannot have changed them."""
    expect_stdout: str | None = None
    """A line that stdout must hold too: exit status 0 alone can come from code that exits early."""
    fresh: bool = False
    """Run it in a sandbox of its own, made after the policy's was ended with every process in it. Without this, what
    the policy left running may still change files while the verifier reads them."""
    collect: tuple[str, ...] = Field(default=(), max_length=100)
    """For `fresh`: files that the policy made, to carry over (at most 1 MiB each), over the task's and under the
    verifier's own. What is missing, or is no regular file, is left out."""


class RolloutTask(Strict):
    """One problem. A line of a batch's task file."""

    id: str = Field(min_length=1, max_length=200)
    prompt: str = ""
    files: tuple[TextFile, ...] = ()
    """Bound into the sandbox before the first turn."""
    verifier: Verifier
    data: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """For the policy only; emberpool does not look into it."""


class PolicyInput(Frozen):
    """What a policy activity is given. It must answer with an Action."""

    rollout_id: str
    task: RolloutTask
    turns: tuple[Turn, ...] = ()
    seed: int = 0


class RolloutInput(Strict):
    """Input of the workflow EmberpoolRollout."""

    rollout_id: str = Field(max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    task: RolloutTask
    profile: str
    caller: str = Field(min_length=1)
    policy: str
    """Name of the policy's activity."""
    policy_task_queue: str | None = None
    """Default: the task queue of the workflow."""
    policy_timeout_s: float = Field(default=300.0, gt=0)
    task_queue: str = "emberpool"
    """Name of emberpool's task queues."""
    seed: int = 0
    max_turns: int = Field(default=8, ge=1, le=100)
    reuse_key: str = ""
    image: str = ""
    hold_s: float = Field(default=900.0, gt=0)
    wait_timeout_s: float = Field(default=600.0, gt=0)
    results_url: str | None = None
    """fsspec URL of a folder; the result is written there as ROLLOUT_ID.json."""
    bundle: Bundle | None = None
    """Code, put into the sandbox before the task's files."""
    requirements: Requirements = ""
    """Python packages that commands can import, as lines of a requirements file or a lock."""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])
    """Environment variables by reference to what the worker has: `{"API_KEY": "env:JOB_API_KEY"}`."""

    def binding(self) -> Binding:
        """What is bound before the first turn."""
        return Binding(bundle=self.bundle, requirements=self.requirements, secrets=self.secrets)


class RolloutOutcome(StrEnum):
    """How a rollout ended."""

    SOLVED = "solved"
    """The verifier accepted it: reward 1."""
    FAILED = "failed"
    """The verifier ran and refused it: reward 0."""
    VERIFIER_TIMED_OUT = "verifier_timed_out"
    """The verifier's time limit passed: reward 0, kept apart so that a slow verifier shows."""
    INFRA = "infra"
    """The sandbox was lost, there was no capacity, or the policy's activity failed: no reward at all."""


class RolloutResult(Frozen):
    """What became of a rollout. `reward` is None when nothing can be said: never 0 for a fault of the
    infrastructure."""

    rollout_id: str
    task_id: str
    outcome: RolloutOutcome
    reward: float | None
    reason: str = ""
    """For infra: the error's type and text. For failed: the verifier's last line."""
    turns: int = 0
    commands: Mapping[Outcome, int] = Field(default_factory=dict[Outcome, int])
    """The policy's commands by outcome."""
    failures: int = 0
    """Commands that ended by themselves with another status than 0."""
    truncated: int = 0
    """Commands whose output went over the limit."""
    source: Source | None = None
    ttfc_s: float | None = None
    """Time to first command: first activity scheduled to emberd's first answer."""
    recycle: RecycleOutcome | None = None
    history_events: int = 0
    """Events in the rollout's history as its result was written."""
    duration_s: float = 0.0

    @model_validator(mode="after")
    def _reward(self) -> Self:
        if (self.reward is None) != (self.outcome is RolloutOutcome.INFRA):
            raise ValueError("reward is None exactly when the outcome is infra")
        return self


class RolloutBatchInput(Strict):
    """Input of the workflow EmberpoolRolloutBatch. Give `tasks_url` (JSON lines of RolloutTask) or `tasks`."""

    batch_id: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    profile: str
    caller: str = Field(min_length=1)
    policy: str
    tasks_url: str | None = None
    tasks: tuple[RolloutTask, ...] = ()
    rollouts_per_task: int = Field(default=1, ge=1, le=1000)
    concurrency: int = Field(default=16, ge=1, le=2000)
    """Rollouts in flight; a little above the pool's ceiling keeps it busy without thousands of waiters."""
    results_url: str | None = None
    seed: int = 0
    max_turns: int = Field(default=8, ge=1, le=100)
    policy_task_queue: str | None = None
    task_queue: str = "emberpool"
    wait_timeout_s: float = Field(default=600.0, gt=0)
    bundle: Bundle | None = None
    """Code, put into every sandbox before the task's files."""
    requirements: Requirements = ""
    """Python packages that commands can import, as lines of a requirements file or a lock."""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])
    """Environment variables by reference to what the worker has: `{"API_KEY": "env:JOB_API_KEY"}`."""

    @model_validator(mode="after")
    def _tasks(self) -> Self:
        if (self.tasks_url is None) == (not self.tasks):
            raise ValueError("tasks: give either tasks_url or tasks, not both and not none")
        return self


class RolloutBatchResult(Frozen):
    """Counts of a batch; the rollouts' own results lie under `results_url`."""

    batch_id: str
    rollouts: int = 0
    by_outcome: Mapping[RolloutOutcome, int] = Field(default_factory=dict[RolloutOutcome, int])
    by_source: Mapping[Source, int] = Field(default_factory=dict[Source, int])
    by_recycle: Mapping[RecycleOutcome, int] = Field(default_factory=dict[RecycleOutcome, int])
    reward_sum: float = 0.0
    worst_ttfc_s: float = 0.0
    results_url: str | None = None
