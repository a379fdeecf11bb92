"""What workflows count. Temporal's meter counts once, not again at each replay, and comes out at the same endpoint."""

from temporalio import workflow

from emberpool.activities.measures import BATCH_WORST_WAIT, ROLLOUTS


def count_rollout(profile: str, outcome: str) -> None:
    """A rollout ended."""
    counter = workflow.metric_meter().create_counter(ROLLOUTS.name, ROLLOUTS.help)
    counter.add(1, {"profile": profile, "outcome": outcome})


def batch_ended(profile: str, worst_wait_s: float) -> None:
    """A batch ended; `worst_wait_s` is the longest time to first command of its rollouts, in seconds."""
    histogram = workflow.metric_meter().create_histogram_float(BATCH_WORST_WAIT.name, BATCH_WORST_WAIT.help)
    histogram.record(worst_wait_s, {"profile": profile})
