"""The demo's stand-in for a model: a script that writes, runs, reads the failure, and only then writes again."""

from temporalio import activity

from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.rollout import Action, PolicyInput, RunStep, TextFile, Turn, WriteStep
from emberpool.worker.demo.candidates import Candidate, text
from emberpool.worker.demo.plan import plan
from emberpool.worker.demo.problems import PATIENT_LIMIT_S, SOLUTION, TRY_LIMIT_S, try_command

POLICY = "emberpool-demo.scripted_policy"
MAX_TRIES = 7
"""One below a rollout's default of eight turns: the last turn says that it is done."""


@activity.defn(name=POLICY)
async def scripted_policy(given: PolicyInput) -> Action:
    """The next action of the rollout. Pure: the same input gives the same action on any worker, also when retried."""
    return next_action(given)


def next_action(given: PolicyInput) -> Action:
    """Write and try the plan's next candidate, until one looks well or the plan is at its end."""
    tries = plan(given.task.id, given.seed).tries
    done = len(given.turns)
    seen = _last_result(given.turns)
    if seen is not None and seen.ok:
        return Action(done=True, note=f"try {done} looks well")
    # The right solution can fail on a machine that is too busy for its time limit: then it is tried again.
    if done >= MAX_TRIES or (done >= len(tries) and tries[-1] is not Candidate.CANONICAL):
        return Action(done=True, note=f"gives up after {done} tries; the last {reading(seen)}")
    kind = tries[min(done, len(tries) - 1)]
    note = f"try {done + 1}" if seen is None else f"try {done + 1}; the last {reading(seen)}"
    limit = PATIENT_LIMIT_S if kind is Candidate.MEMORY else TRY_LIMIT_S
    source = text(kind, given.task, given.seed)
    return Action(
        steps=(WriteStep(file=TextFile(path=SOLUTION, text=source)), RunStep(command=try_command(limit))),
        note=note,
    )


def reading(result: CommandResult | None) -> str:
    """What the policy reads from a try, as the end of a sentence."""
    if result is None:
        return "left no result"
    if result.outcome is Outcome.TIMED_OUT:
        return f"was stopped after {result.time_limit_s:g} s"
    if result.outcome is Outcome.SIGNALED:
        return f"died of signal {result.signal}"
    if result.outcome is Outcome.OOM_KILLED:
        return "took too much memory"
    lines = result.error_text.strip().splitlines()
    cut = ", its output cut" if result.truncated else ""
    return f"ended with status {result.exit_code}{cut}: {lines[-1][:80] if lines else 'no message'}"


def _last_result(turns: tuple[Turn, ...]) -> CommandResult | None:
    return turns[-1].results[-1] if turns and turns[-1].results else None
