"""What activities count, in words of the domain, on a registry of this worker's own.

A worker's registry, not prometheus-client's global one: two workers in one process (tests, notebooks) must not mix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from emberpool.activities import measures
from emberpool.activities.measures import Kind, Measure
from emberpool.pool.index.contract import PoolCounts
from emberpool.pool.model.claim import Claimed, ClaimReply
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.recycle import Attestation, RecycleOutcome
from emberpool.pool.model.state import PodState


class Metrics:
    """A worker's metrics. One per worker; `of(profile)` is what activities use."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ours = [measure for measure in measures.MEASURES if not measure.from_workflow]
        self._counters = {one.name: self._counter(one) for one in ours if one.kind is Kind.COUNTER}
        self._gauges = {one.name: self._gauge(one) for one in ours if one.kind is Kind.GAUGE}
        self._histograms = {one.name: self._histogram(one) for one in ours if one.kind is Kind.HISTOGRAM}

    def of(self, profile: str) -> "PoolMetrics":
        """The metrics of one pool."""
        return PoolMetrics(self, profile)

    def count(self, measure: Measure, by: float = 1.0, **labels: str) -> None:
        """Raise a counter."""
        self._counters[measure.name].labels(**labels).inc(by)

    def set(self, measure: Measure, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._gauges[measure.name].labels(**labels).set(value)

    def observe(self, measure: Measure, seconds: float, **labels: str) -> None:
        """Add to a histogram."""
        self._histograms[measure.name].labels(**labels).observe(seconds)

    def _counter(self, measure: Measure) -> Counter:
        return Counter(measure.name, measure.help, measure.labels, registry=self.registry)

    def _gauge(self, measure: Measure) -> Gauge:
        return Gauge(measure.name, measure.help, measure.labels, registry=self.registry)

    def _histogram(self, measure: Measure) -> Histogram:
        return Histogram(measure.name, measure.help, measure.labels, registry=self.registry, buckets=measures.SECONDS)


@dataclass(frozen=True)
class PoolMetrics:
    """What happens in one pool, as this worker sees it."""

    metrics: Metrics
    profile: str

    def claim_answered(self, reply: ClaimReply, seconds: float, new: bool) -> None:
        """The index answered in `seconds`. Of a sandbox that has its pod (`new` false) only the time counts.

        It may learn of its pod several times before its first call is answered: in a wait, in calls that are made side
        by side, in a call's next attempt. Only the answer that its first contact with the pod follows is counted.
        """
        self.metrics.observe(measures.CLAIM_SECONDS, seconds, profile=self.profile)
        if reply.new if isinstance(reply, Claimed) else new:
            source = reply.source.value if isinstance(reply, Claimed) else ""
            self.metrics.count(measures.CLAIMS, profile=self.profile, outcome=reply.kind, source=source)

    def opened(self, claimed: Claimed, wait_s: float, ttfc_s: float) -> None:
        """A sandbox's first call was answered by its pod: what it waited for the pod, and in all."""
        source = claimed.source.value
        self.metrics.observe(measures.CLAIM_WAIT, wait_s, profile=self.profile, source=source)
        self.metrics.observe(measures.TTFC, ttfc_s, profile=self.profile, source=source)

    def command_ended(self, result: CommandResult) -> None:
        """A command ended in its pod."""
        outcome = result.outcome.value
        self.metrics.observe(measures.COMMANDS, result.duration_s, profile=self.profile, outcome=outcome)

    def sandbox_lost(self, reason: str) -> None:
        """A call found its sandbox lost."""
        word = reason.split(":")[0].strip()
        known = word if word in measures.LOST_REASONS else "other"
        self.metrics.count(measures.SANDBOXES_LOST, profile=self.profile, reason=known)

    def first_contact_failed(self) -> None:
        """A newly claimed pod did not answer."""
        self.metrics.count(measures.FIRST_CONTACT_FAILURES, profile=self.profile)

    def recycled(self, outcome: RecycleOutcome, attestation: Attestation, seconds: float) -> None:
        """A pod was reset, or could not be."""
        tier = attestation.tier.value
        self.metrics.count(measures.RECYCLES, profile=self.profile, tier=tier, outcome=outcome.value)
        self.metrics.observe(measures.RECYCLE_SECONDS, seconds, profile=self.profile, tier=tier)

    def quarantined(self, checks: Sequence[str]) -> None:
        """A pod did not prove its reset: these checks failed."""
        for check in checks:
            known = check if check in measures.CHECKS else "other"
            self.metrics.count(measures.QUARANTINES, profile=self.profile, check=known)

    def pod_started(self, ready: bool, seconds: float) -> None:
        """A pod became ready, or was given up."""
        outcome = "ready" if ready else "failed"
        self.metrics.observe(measures.POD_STARTS, seconds, profile=self.profile, outcome=outcome)

    def rebuilt(self, outcome: Literal["done", "lost", "failed"], seconds: float, **pods: int) -> None:
        """A rebuild of the index ended so. If it is done, how many pods were `heard` and `silent`."""
        self.metrics.observe(measures.REBUILD_SECONDS, seconds, profile=self.profile, outcome=outcome)
        for word, count in pods.items():
            self.metrics.count(measures.REBUILT_PODS, count, profile=self.profile, outcome=word)

    def tended(self, chores: Mapping[str, int]) -> None:
        """Tending did so many of each chore."""
        for chore, count in chores.items():
            if count:
                self.metrics.count(measures.TENDED, count, profile=self.profile, chore=chore)

    def counted(self, counts: PoolCounts | None, stuck: int = 0) -> None:
        """What the index says now, of pods that do not go too; None if it does not answer. Then the gauges keep their
        last values."""
        self.metrics.set(measures.INDEX_UP, 0 if counts is None else 1, profile=self.profile)
        if counts is None:
            return
        for state in PodState:
            if state is not PodState.GONE:
                pods = counts.by_state.get(state, 0)
                self.metrics.set(measures.PODS, pods, profile=self.profile, state=state.value)
        now = {
            measures.PODS_FRESH: counts.idle_fresh,
            measures.PODS_STUCK: stuck,
            measures.CEILING: counts.ceiling,
            measures.WARM_TARGET: counts.min_warm,
            measures.LEASES: counts.leases,
            measures.WAITING: counts.waiting,
            measures.OLDEST_WAIT: counts.oldest_wait_ms / 1000,
        }
        for measure, value in now.items():
            self.metrics.set(measure, value, profile=self.profile)


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begun = perf_counter()

    @property
    def seconds(self) -> float:
        return perf_counter() - self._begun
