"""The scripted policy is pure, follows its plan, and goes on only after it has read what its last try came to."""

from collections import Counter

import pytest

from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.rollout import Action, PolicyInput, RolloutOutcome, RolloutTask, RunStep, Turn, WriteStep
from emberpool.worker.demo.candidates import Candidate, text
from emberpool.worker.demo.plan import UNSOLVED_SHARE, Plan, ended, expected, looks_well, plan
from emberpool.worker.demo.policy import MAX_TRIES, next_action
from emberpool.worker.demo.problems import problems


@pytest.fixture(scope="module")
def tasks() -> tuple[RolloutTask, ...]:
    return problems()


def _result(kind: Candidate) -> CommandResult:
    outcome = ended(kind)
    status = (0 if looks_well(kind) else 1) if outcome is Outcome.EXITED else None
    return CommandResult(outcome=outcome, exit_code=status, truncated=kind is Candidate.NOISY)


def _play(task: RolloutTask, seed: int) -> list[Action]:
    """The whole rollout, with the results that the plan foresees."""
    turns: tuple[Turn, ...] = ()
    kinds = iter(plan(task.id, seed).tries)
    actions: list[Action] = []
    while not actions or not actions[-1].done:
        action = next_action(PolicyInput(rollout_id="r", task=task, turns=turns, seed=seed))
        actions.append(action)
        turns = (*turns, Turn(action=action, results=() if action.done else (_result(next(kinds)),)))
    return actions


def test_it_follows_its_plan(tasks: tuple[RolloutTask, ...]) -> None:
    """In every rollout it writes the plan's candidates in order, tries each, and ends."""
    for number, task in enumerate(tasks):
        *tries, last = _play(task, number)
        assert last.done and not last.steps
        for action, kind in zip(tries, plan(task.id, number).tries, strict=True):
            write, run = action.steps
            assert isinstance(write, WriteStep) and isinstance(run, RunStep)
            assert write.file.text == text(kind, task, number)


def test_the_same_input_gives_the_same_action(tasks: tuple[RolloutTask, ...]) -> None:
    """A retried policy activity answers the same; another seed or task gives another rollout."""
    assert _play(tasks[0], 5) == _play(tasks[0], 5)
    assert len({plan(tasks[0].id, seed) for seed in range(50)}) > 10
    assert len({plan(task.id, 0) for task in tasks}) > 10


def test_it_stops_at_the_first_try_that_looks_well(tasks: tuple[RolloutTask, ...]) -> None:
    """A try with exit status 0 ends the rollout, whatever the plan had next."""
    given = PolicyInput(rollout_id="r", task=tasks[0], seed=0)
    action = next_action(given)
    well = Turn(action=action, results=(_result(Candidate.CANONICAL),))
    assert next_action(given.model_copy(update={"turns": (well,)})).done


def test_it_says_what_it_read(tasks: tuple[RolloutTask, ...]) -> None:
    """The note of the next try tells how the last one ended."""
    given = PolicyInput(rollout_id="r", task=tasks[0], seed=0)
    results = {
        "was stopped after 2 s": CommandResult(outcome=Outcome.TIMED_OUT, time_limit_s=2.0),
        "died of signal 11": CommandResult(outcome=Outcome.SIGNALED, signal=11),
        "took too much memory": CommandResult(outcome=Outcome.OOM_KILLED),
        "status 1, its output cut: ValueError: odd": CommandResult(
            outcome=Outcome.EXITED, exit_code=1, stderr=b"Traceback\nValueError: odd\n", truncated=True
        ),
        "status 3: no message": CommandResult(outcome=Outcome.EXITED, exit_code=3),
    }
    for told, result in results.items():
        turn = Turn(action=next_action(given), results=(result,))
        assert told in next_action(given.model_copy(update={"turns": (turn,)})).note


def test_a_right_solution_that_met_a_busy_machine_is_tried_again(tasks: tuple[RolloutTask, ...]) -> None:
    """A canonical try that timed out is repeated, up to the turns that a rollout has."""
    seed = next(seed for seed in range(99) if plan(tasks[0].id, seed).outcome is RolloutOutcome.SOLVED)
    turns: tuple[Turn, ...] = ()
    stopped = CommandResult(outcome=Outcome.TIMED_OUT, time_limit_s=2.0)
    for count in range(MAX_TRIES + 1):
        action = next_action(PolicyInput(rollout_id="r", task=tasks[0], turns=turns, seed=seed))
        assert action.done == (count == MAX_TRIES)
        turns = (*turns, Turn(action=action, results=(stopped,)))


def test_most_are_solved_and_every_kind_occurs() -> None:
    """Over many rollouts a small share stays unsolved, in every way, and every way to break is used."""
    plans = [plan(f"HumanEval/{task}", seed) for task in range(164) for seed in range(20)]
    unsolved = [each for each in plans if each.outcome is not RolloutOutcome.SOLVED]
    assert len(unsolved) / len(plans) == pytest.approx(UNSOLVED_SHARE, abs=0.02)
    assert {kind for each in plans for kind in each.tries} == set(Candidate)
    assert {each.outcome for each in plans} == set(RolloutOutcome) - {RolloutOutcome.INFRA}
    assert all(1 < len(each.tries) < MAX_TRIES for each in plans)


def test_expectations_count_every_try() -> None:
    """The expected counts are the sum over the plans' tries."""
    counts = expected(
        [
            Plan((Candidate.NOISY, Candidate.SIGNAL, Candidate.CANONICAL)),
            Plan((Candidate.EXIT, Candidate.EARLY_EXIT)),
            Plan((Candidate.MEMORY, Candidate.ENDLESS)),
        ]
    )
    assert counts.outcomes == Counter(
        {RolloutOutcome.SOLVED: 1, RolloutOutcome.FAILED: 1, RolloutOutcome.VERIFIER_TIMED_OUT: 1}
    )
    assert counts.commands == Counter(
        {Outcome.EXITED: 4, Outcome.SIGNALED: 1, Outcome.OOM_KILLED: 1, Outcome.TIMED_OUT: 1}
    )
    assert (counts.failures, counts.truncated) == (2, 1)
