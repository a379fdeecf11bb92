"""What a run of the demo came to: counted from the rollouts' own results, and compared with the plan."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.rollout import RolloutOutcome, RolloutResult
from emberpool.worker.demo.costs import Cost
from emberpool.worker.demo.plan import Plan, Tally, expected

MAX_DIFFERENCES = 10
"""Differences told one by one; the rest is a number."""
FIRST_USES = (Source.FRESH, Source.STANDBY, Source.COLD)
"""Sources of a pod's first lease."""


class Spread(Frozen):
    """Quantiles (nearest rank) of a measure; None of nothing."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


class Report(Frozen):
    """The demo's outcome, for people (table.py) and for machines (`--json`). Times are seconds."""

    rollouts: int
    """Asked for."""
    results: int
    """Found in the results folder."""
    reward_sum: float
    rewarded: int
    """Results that have a reward: all but those of the infrastructure's faults."""
    outcomes: Mapping[RolloutOutcome, int]
    commands: Mapping[Outcome, int]
    exited_ok: int
    exited_non_zero: int
    truncated: int
    sources: Mapping[Source, int]
    reuse_share: float
    """Share of the rollouts that were served by a pod which they themselves or their siblings had used before."""
    pods_created: int
    """Pods that served a first lease, and warm ones that nobody needed."""
    recycles: Mapping[RecycleOutcome, int]
    ttfc_s: Spread
    rollout_s: Spread
    history_events: Spread
    wall_s: float
    temporal_ui: str
    results_folder: str
    costs_sampled: int = 0
    """Rollouts whose histories were read for the two below."""
    actions: Spread = Spread()
    """Billable Temporal actions per rollout."""
    payload_bytes: Spread = Spread()
    """Bytes of inputs and results that Temporal stores per rollout."""
    differences: tuple[str, ...]
    """What is not as planned; empty means that all is well."""


def make_report(
    plans: Mapping[str, Plan],
    results: Sequence[RolloutResult],
    *,
    spare_pods: int,
    wall_s: float,
    temporal_ui: str,
    results_folder: str,
    costs: Sequence[Cost] = (),
) -> Report:
    """Count the results of the planned rollouts (by rollout id). `spare_pods`: warm pods that were never used."""
    real = tally(results)
    sources = Counter(result.source for result in results if result.source is not None)
    exited = real.commands[Outcome.EXITED]
    rewards = [result.reward for result in results if result.reward is not None]
    return Report(
        rollouts=len(plans),
        results=len(results),
        reward_sum=sum(rewards),
        rewarded=len(rewards),
        outcomes=dict(real.outcomes),
        commands=dict(real.commands),
        exited_ok=exited - real.failures,
        exited_non_zero=real.failures,
        truncated=real.truncated,
        sources=dict(sources),
        reuse_share=sources[Source.REUSE] / len(results) if results else 0.0,
        pods_created=sum(sources[source] for source in FIRST_USES) + spare_pods,
        recycles=dict(Counter(result.recycle for result in results if result.recycle is not None)),
        ttfc_s=spread(result.ttfc_s for result in results if result.ttfc_s is not None),
        rollout_s=spread(result.duration_s for result in results),
        history_events=spread(result.history_events for result in results),
        wall_s=wall_s,
        temporal_ui=temporal_ui,
        results_folder=results_folder,
        costs_sampled=len(costs),
        actions=spread(cost.actions for cost in costs),
        payload_bytes=spread(cost.payload_bytes for cost in costs),
        differences=differences(plans, results),
    )


def tally(results: Iterable[RolloutResult]) -> Tally:
    """The same counts as the plan's, of what really happened."""
    outcomes: Counter[RolloutOutcome] = Counter()
    commands: Counter[Outcome] = Counter()
    failures = truncated = 0
    for result in results:
        outcomes[result.outcome] += 1
        commands.update(result.commands)
        failures += result.failures
        truncated += result.truncated
    return Tally(outcomes, commands, failures, truncated)


def differences(plans: Mapping[str, Plan], results: Sequence[RolloutResult]) -> tuple[str, ...]:
    """What is not as planned, one sentence per rollout: missing, doubled, unplanned, or ended in another way."""
    found: list[str] = []
    seen = Counter(result.rollout_id for result in results)
    found += [f"{name}: no result" for name in plans if name not in seen]
    found += [f"{name}: {count} results" for name, count in seen.items() if count > 1]
    for result in results:
        plan = plans.get(result.rollout_id)
        if plan is None:
            found.append(f"{result.rollout_id}: nobody asked for it")
        elif (told := _difference(plan, result)) is not None:
            found.append(f"{result.rollout_id}: {told}")
    if len(found) > MAX_DIFFERENCES:
        found[MAX_DIFFERENCES:] = [f"and {len(found) - MAX_DIFFERENCES} more"]
    return tuple(found)


def _difference(plan: Plan, result: RolloutResult) -> str | None:
    want, have = expected([plan]), tally([result])
    if have == want:
        return None
    tries = ", ".join(plan.tries)
    if result.outcome is not plan.outcome:
        reason = f" ({result.reason})" if result.reason else ""
        return f"{result.outcome}{reason} instead of {plan.outcome} [{tries}]"
    return f"commands {_told(have)} instead of {_told(want)} [{tries}]"


def _told(counts: Tally) -> str:
    ends = " ".join(f"{outcome}={number}" for outcome, number in sorted(counts.commands.items()))
    return f"{ends} failures={counts.failures} truncated={counts.truncated}"


def spread(values: Iterable[float]) -> Spread:
    """Quantiles by nearest rank: each is a value that occurred."""
    ordered = sorted(values)
    if not ordered:
        return Spread()

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Spread(p50=rank(0.5), p90=rank(0.9), p99=rank(0.99), max=ordered[-1])
