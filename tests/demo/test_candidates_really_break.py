"""Each broken kind breaks in its own way when it is run; a crash is never a pass (verl-project/verl#7853)."""

import signal
from pathlib import Path

import pytest
from fixtures.demo import Ran, Trial, passes, run_trials

from emberpool.pool.model.rollout import RolloutTask
from emberpool.worker.demo.candidates import SIGNALS, Candidate
from emberpool.worker.demo.problems import OUTPUT_LIMIT, TRIAL, VERIFIER, problems

CRASHES = (Candidate.SYNTAX, Candidate.EXIT, Candidate.SIGNAL)


@pytest.fixture(scope="module")
def tasks() -> tuple[RolloutTask, ...]:
    return problems()


def _one(folder: Path, task: RolloutTask, kind: Candidate, limit_s: float = 20, seed: int = 0) -> Ran:
    (ran,) = run_trials(folder, [Trial(task, kind, TRIAL, limit_s, seed)])
    return ran


def test_no_crash_passes(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """No candidate that crashes passes the verifier of any problem, nor ends its trial with status 0."""
    trials = [Trial(task, kind, script) for task in tasks for kind in CRASHES for script in (TRIAL, VERIFIER)]
    rans = run_trials(tmp_path, trials)
    assert [(ran.trial.task.id, ran.trial.kind) for ran in rans if ran.status == 0 or passes(ran)] == []


def test_a_syntax_error_shows(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """The syntax error's own text is on stderr."""
    ran = _one(tmp_path, tasks[0], Candidate.SYNTAX)
    assert ran.status == 1 and "SyntaxError" in ran.stderr


def test_an_exit_has_its_own_status(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """The candidate that calls sys.exit ends with its status, 3."""
    assert _one(tmp_path, tasks[0], Candidate.EXIT).status == 3


@pytest.mark.parametrize("seed", range(len(SIGNALS)))
def test_a_signal_ends_it(tasks: tuple[RolloutTask, ...], tmp_path: Path, seed: int) -> None:
    """The candidate dies of the signal that its seed chooses."""
    assert _one(tmp_path, tasks[0], Candidate.SIGNAL, seed=seed).status == -signal.Signals[SIGNALS[seed]]


def test_an_endless_one_is_stopped(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """The endless candidate is still at it when its time limit passes."""
    assert _one(tmp_path, tasks[0], Candidate.ENDLESS, limit_s=1).status == -signal.SIGALRM


def test_a_noisy_one_goes_over_the_output_limit(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """The noisy candidate prints far more than a try keeps, and its failure comes last."""
    ran = _one(tmp_path, tasks[0], Candidate.NOISY)
    assert len(ran.stdout) > 10 * OUTPUT_LIMIT and ran.stderr.rstrip().endswith("the input is odd")


def test_a_greedy_one_meets_its_memory_limit(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """The greedy candidate takes more than the limit of memory."""
    assert "MemoryError" in _one(tmp_path, tasks[0], Candidate.MEMORY).stderr
