"""A small demo through everything that is real: Temporal, Redis, pods, emberd, a worker, the policy, the verifiers."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from fixtures.command_line import EMBERPOOL, clean_env

from emberpool.pool.model.rollout import RolloutOutcome
from emberpool.worker.demo.plan import expected, plans_of
from emberpool.worker.demo.report import Report, tally
from emberpool.worker.demo.results import count_results, read_results

PROBLEMS, EACH, PODS, SEED = 8, 2, 3, 1


@dataclass(frozen=True)
class Run:
    """A demo that has ended."""

    status: int
    stdout: str
    stderr: str
    report: Report


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run of the command, as a user runs it."""
    folder: Path = tmp_path_factory.mktemp("demo")
    numbers = {"--problems": PROBLEMS, "--rollouts-per-task": EACH, "--pods": PODS, "--seed": SEED}
    options = [str(part) for pair in numbers.items() for part in pair]
    files = ["--json", str(folder / "report.json"), "--data-dir", str(folder / "data")]
    command = [*EMBERPOOL, "demo", *options, *files]
    done = subprocess.run(command, cwd=folder, env=clean_env(), capture_output=True, text=True, timeout=300.0)
    assert (folder / "report.json").exists(), done.stdout + done.stderr
    report = Report.model_validate_json((folder / "report.json").read_bytes())
    return Run(done.returncode, done.stdout, done.stderr, report)


def test_every_rollout_has_its_result_and_ended_as_planned(run: Run) -> None:
    """As many results as rollouts, each with the outcome and the commands that its plan foresaw; exit status 0."""
    plans = plans_of([f"HumanEval/{number}" for number in range(PROBLEMS)], EACH, SEED)
    assert run.report.differences == (), run.stdout
    assert run.status == 0, run.stdout + run.stderr
    assert run.report.results == run.report.rollouts == PROBLEMS * EACH
    results = read_results(Path(run.report.results_folder))
    assert count_results(Path(run.report.results_folder)) == len(results) == PROBLEMS * EACH
    assert {result.rollout_id for result in results} == set(plans)
    assert tally(results) == expected(plans.values())
    assert run.report.outcomes[RolloutOutcome.SOLVED] == run.report.reward_sum


def test_few_pods_serve_many_rollouts(run: Run) -> None:
    """No more pods than the ceiling; every rollout but each pod's first was served by a pod used before."""
    assert run.report.pods_created <= PODS
    assert sum(run.report.sources.values()) == PROBLEMS * EACH
    assert run.report.reuse_share >= (PROBLEMS * EACH - PODS) / (PROBLEMS * EACH)
    assert sum(run.report.recycles.values()) == PROBLEMS * EACH


def test_the_output_is_for_logs_too(run: Run) -> None:
    """Without a terminal there are no colour codes, no bar, nothing over 100 columns but addresses and paths."""
    assert "\x1b" not in run.stdout and "\r" not in run.stdout
    table = [line for line in run.stdout.splitlines() if line[:1] in "┏┃┡│└├┌"]
    assert table and max(len(line) for line in table) <= 100
    assert "Temporal UI: http://127.0.0.1:" in run.stdout
    assert "emberpool dev --data-dir" in run.stdout
