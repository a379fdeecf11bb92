"""The report as a table for people."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from emberpool.worker.demo.report import Report, Spread

S = TypeVar("S", bound=str)


def print_report(console: Console, report: Report, show_later: str) -> None:
    """The table, where to look further, and what is not as planned."""
    console.print(to_table(report))
    console.print(f"Results: {report.results_folder}", soft_wrap=True)
    console.print(f"Temporal UI: {report.temporal_ui}", soft_wrap=True)
    console.print(f"To look at it again later: {show_later}", soft_wrap=True)
    if not report.differences:
        console.print(f"All {report.rollouts} rollouts have a result, and every one ended as planned.")
        return
    console.print("Not as planned:")
    for line in report.differences:
        console.print(f"  {line}", markup=False, soft_wrap=True)


def to_table(report: Report) -> Table:
    """One row per question."""
    table = Table(title=f"{report.rollouts} rollouts of HumanEval", show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    mean = f", mean {report.reward_sum / report.rewarded:.3f}" if report.rewarded else ""
    rows = (
        ("results", f"{report.results} of {report.rollouts}"),
        ("rewards", f"sum {report.reward_sum:g} over {report.rewarded} rollouts with a reward{mean}"),
        ("outcomes", _counts(report.outcomes)),
        ("commands", _commands(report)),
        ("served from", f"{_counts(report.sources)}; {report.reuse_share:.1%} reused"),
        ("pods created", f"{report.pods_created} for {report.results} rollouts"),
        ("recycles", _counts(report.recycles)),
        ("time to first command", _seconds(report.ttfc_s)),
        ("rollout's time", _seconds(report.rollout_s)),
        ("history events", _events(report.history_events)),
        ("Temporal actions", f"{_events(report.actions)}; from {report.costs_sampled} histories"),
        ("payload bytes", f"{_bytes(report.payload_bytes)}"),
        ("wall time", f"{report.wall_s:.1f} s, {report.results / max(report.wall_s, 1e-9):.1f} rollouts/s"),
    )
    for name, value in rows:
        table.add_row(name, value)
    return table


def _counts(counts: Mapping[S, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def _commands(report: Report) -> str:
    parts = [f"exited 0: {report.exited_ok}", f"exited non-zero: {report.exited_non_zero}"]
    parts += [f"{name}: {number}" for name, number in sorted(report.commands.items()) if name != "exited"]
    return ", ".join((*parts, f"output cut: {report.truncated}"))


def _seconds(spread: Spread) -> str:
    return _spread(spread, lambda value: f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s")


def _events(spread: Spread) -> str:
    return _spread(spread, lambda value: f"{value:.0f}")


def _bytes(spread: Spread) -> str:
    return _spread(spread, lambda value: f"{value / 1024:.1f} KiB")


def _spread(spread: Spread, told: Callable[[float], str]) -> str:
    named = (("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99), ("max", spread.max))
    return ", ".join(f"{name} {told(value)}" for name, value in named if value is not None) or "not measured"
