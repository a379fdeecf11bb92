"""The report counts what happened, compares each rollout with its plan, and fits a page."""

from io import StringIO

from rich.console import Console

from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.rollout import RolloutOutcome, RolloutResult
from emberpool.worker.demo.plan import Plan, expected, plans_of
from emberpool.worker.demo.report import MAX_DIFFERENCES, Report, Spread, differences, make_report, spread, tally
from emberpool.worker.demo.table import print_report

IDS = [f"HumanEval/{number}" for number in range(10)]


def _result(rollout_id: str, plan: Plan, number: int = 0) -> RolloutResult:
    """What the rollout comes to if all goes as planned."""
    counts = expected([plan])
    return RolloutResult(
        rollout_id=rollout_id,
        task_id="HumanEval/0",
        outcome=plan.outcome,
        reward=float(plan.outcome is RolloutOutcome.SOLVED),
        commands=dict(counts.commands),
        failures=counts.failures,
        truncated=counts.truncated,
        source=Source.REUSE if number > 3 else Source.FRESH,
        ttfc_s=0.01 * (number + 1),
        recycle=RecycleOutcome.IDLE,
        history_events=60,
        duration_s=1.5,
    )


def _report(plans: dict[str, Plan], results: list[RolloutResult]) -> Report:
    return make_report(
        plans, results, spare_pods=1, wall_s=20.0, temporal_ui="http://127.0.0.1:8233/x", results_folder="/r"
    )


def test_as_planned_means_no_differences() -> None:
    """If each rollout ended as planned, nothing differs and every count is there."""
    plans = plans_of(IDS, 4, seed=0)
    results = [_result(name, plan, number) for number, (name, plan) in enumerate(plans.items())]
    report = _report(plans, results)
    assert report.differences == ()
    assert tally(results) == expected(plans.values())
    assert (report.rollouts, report.results, report.rewarded) == (40, 40, 40)
    assert report.pods_created == 5 and report.reuse_share == 36 / 40
    assert report.exited_ok + report.exited_non_zero == report.commands[Outcome.EXITED]
    assert report.ttfc_s == Spread(p50=0.2, p90=0.36, p99=0.4, max=0.4)


def test_each_difference_is_told() -> None:
    """A missing, a doubled, an unplanned, a lost and a differing rollout are each told by id and cause."""
    plans = plans_of(IDS, 1, seed=0)
    results = {name: _result(name, plan) for name, plan in plans.items()}
    names = list(plans)
    missing = results.pop(names[0])
    lost = RolloutResult(
        rollout_id=names[1], task_id="t", outcome=RolloutOutcome.INFRA, reward=None, reason="SandboxLost: pod_gone"
    )
    odd = results[names[2]].model_copy(update={"truncated": 7})
    stray = missing.model_copy(update={"rollout_id": "stray"})
    told = differences(
        plans, [*(result for name, result in results.items() if name not in names[1:3]), lost, odd, stray, stray]
    )
    text = "\n".join(told)
    assert f"{names[0]}: no result" in text and "stray: 2 results" in text and "stray: nobody asked for it" in text
    assert f"{names[1]}: infra (SandboxLost: pod_gone) instead of" in text
    assert f"{names[2]}: commands" in text and "truncated=7" in text


def test_many_differences_are_a_number() -> None:
    """A batch that went wrong altogether is not told line by line."""
    told = differences(plans_of(IDS, 4, seed=0), [])
    assert len(told) == MAX_DIFFERENCES + 1 and told[-1] == "and 30 more"


def test_the_table_fits_a_page_without_colours() -> None:
    """Where no terminal is, the report has at most 100 columns, no colour codes, and all that a person asks for."""
    plans = plans_of(IDS, 4, seed=0)
    out = StringIO()
    console = Console(file=out, width=100, highlight=False)
    results = [_result(name, plan) for name, plan in plans.items()]
    print_report(console, _report(plans, results), "emberpool dev --data-dir /d")
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 100 and "\x1b" not in text
    for wanted in ("40 of 40", "rewards", "timed_out", "pods created", "p99", "ended as planned", "emberpool dev"):
        assert wanted in text


def test_a_report_without_results_can_be_shown() -> None:
    """A batch that gave nothing still has its table."""
    out = StringIO()
    print_report(Console(file=out, width=100), _report(plans_of(IDS, 1, seed=0), []), "later")
    assert "Not as planned" in out.getvalue() and "not measured" in out.getvalue()


def test_quantiles_are_values_that_occurred() -> None:
    """Nearest rank, of one value and of none."""
    assert spread([3.0]) == Spread(p50=3, p90=3, p99=3, max=3)
    assert spread([]) == Spread()
    assert spread(range(1, 101)) == Spread(p50=50, p90=90, p99=99, max=100)
