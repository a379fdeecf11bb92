"""Every metric of emberpool: name, meaning, labels, buckets. The one place where they are declared.

No label has more values than an operator has profiles, or than an enumeration has members: callers, pods, images and
workflows are never labels. Plain data, since workflows count by the same names (through Temporal's own meter).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SECONDS: Final = (
    *(0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25),
    *(0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
"""A warm call takes a few milliseconds, a wait in line minutes: 1 ms is told from 2."""


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Measure:
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ("profile",)
    from_workflow: bool = False
    """Counted by a workflow through Temporal's meter; then its labels come with those of the SDK (task queue, ...)."""


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

CLAIMS: Final = Measure(
    "emberpool_claims_total",
    _C,
    "Answers of the index to claims. outcome: claimed, or promote, swap, provision, wait, lost, closed, expired, "
    "mismatch, rebuilding; source: where a claimed pod came from, else empty. A sandbox is claimed once, whether it "
    "waited or not; only a pod that fails at first contact makes it claim another. Its later calls are not counted.",
    ("profile", "outcome", "source"),
)
CLAIM_SECONDS: Final = Measure("emberpool_claim_seconds", _H, "One question to the index: its round trip to Redis.")
CLAIM_WAIT: Final = Measure(
    "emberpool_claim_wait_seconds",
    _H,
    "From a sandbox's first activity scheduled to its pod claimed: queue, line and provisioning.",
    ("profile", "source"),
)
TTFC: Final = Measure(
    "emberpool_time_to_first_command_seconds",
    _H,
    "From a sandbox's first activity scheduled to emberd's answer to the opening call.",
    ("profile", "source"),
)
COMMANDS: Final = Measure(
    "emberpool_command_seconds", _H, "What commands took in their pods, by how they ended.", ("profile", "outcome")
)
SANDBOXES_LOST: Final = Measure(
    "emberpool_sandboxes_lost_total", _C, "Calls that found their sandbox lost.", ("profile", "reason")
)
FIRST_CONTACT_FAILURES: Final = Measure(
    "emberpool_first_contact_failures_total", _C, "Newly claimed pods that did not answer; the claim moved on."
)
RECYCLES: Final = Measure(
    "emberpool_recycles_total",
    _C,
    "Released pods by how they were reset and what became of them.",
    ("profile", "tier", "outcome"),
)
QUARANTINES: Final = Measure(
    "emberpool_quarantines_total",
    _C,
    "Pods deleted because their reset was not proved, by each check that failed; `answer`: emberd did not answer.",
    ("profile", "check"),
)
RECYCLE_SECONDS: Final = Measure(
    "emberpool_recycle_seconds", _H, "Fence, reset and attestation of one pod.", ("profile", "tier")
)
POD_STARTS: Final = Measure(
    "emberpool_pod_start_seconds",
    _H,
    "From asking the provider for a pod to its emberd serving (or to giving up).",
    ("profile", "outcome"),
)
PODS: Final = Measure(
    "emberpool_pods", _G, "Pods by state, from the index. Every worker tells the same: take the max.",
    ("profile", "state"),
)  # fmt: skip
PODS_FRESH: Final = Measure("emberpool_pods_idle_fresh", _G, "Idle pods that nobody has used yet.")
PODS_STUCK: Final = Measure(
    "emberpool_pods_stuck", _G, "Draining pods that have not gone for five minutes; a hundred at most are counted."
)
CEILING: Final = Measure("emberpool_pods_ceiling", _G, "Most pods that the pool may have.")
WARM_TARGET: Final = Measure("emberpool_pods_warm_target", _G, "Pods that the pool keeps warm and free.")
LEASES: Final = Measure("emberpool_leases", _G, "Sandboxes that hold a pod.")
WAITING: Final = Measure("emberpool_waiting_requests", _G, "Requests in line.")
OLDEST_WAIT: Final = Measure("emberpool_oldest_wait_seconds", _G, "How long the oldest request in line has waited.")
INDEX_UP: Final = Measure("emberpool_index_up", _G, "1 if the pool's index answered this scrape, 0 if not.")
REBUILD_SECONDS: Final = Measure(
    "emberpool_index_rebuild_seconds",
    _H,
    "Rebuilds of a lost index from the pods' accounts. outcome: done, lost (to another worker) or failed.",
    ("profile", "outcome"),
)
REBUILT_PODS: Final = Measure(
    "emberpool_index_rebuild_pods_total",
    _C,
    "Pods asked in rebuilds that were done. outcome: heard, or silent (deleted).",
    ("profile", "outcome"),
)
TENDED: Final = Measure(
    "emberpool_tended_total", _C, "Chores of tending: recycled, deleted, expired, swept.", ("profile", "chore")
)
ROLLOUTS: Final = Measure(
    "emberpool_rollouts_total", _C, "Rollouts by outcome.", ("profile", "outcome"), from_workflow=True
)
BATCH_WORST_WAIT: Final = Measure(
    "emberpool_batch_worst_wait_seconds",
    _H,
    "Of each batch, the longest time to first command of its rollouts: what a synchronous step waits for.",
    from_workflow=True,
)

MEASURES: Final = (
    CLAIMS, CLAIM_SECONDS, CLAIM_WAIT, TTFC, COMMANDS, SANDBOXES_LOST, FIRST_CONTACT_FAILURES, RECYCLES,
    QUARANTINES, RECYCLE_SECONDS, POD_STARTS, PODS, PODS_FRESH, PODS_STUCK, CEILING, WARM_TARGET, LEASES, WAITING,
    OLDEST_WAIT, INDEX_UP, REBUILD_SECONDS, REBUILT_PODS, TENDED, ROLLOUTS, BATCH_WORST_WAIT,
)  # fmt: skip
"""All of them."""

LOST_REASONS: Final = frozenset(
    {"hold_expired", "pod_gone", "restarted", "evicted", "oom", "fenced", "gone", "exited", "node_lost", "unknown"}
)
"""Values of the label `reason`; any other is `other`."""

CHECKS: Final = frozenset(
    ("processes", "listeners", "scratch", "shared_memory", "mounts", "vram", "manifest", "new_process")
    + ("tier", "answer")
)
"""Values of the label `check`; any other is `other`."""

SDK_BUCKETS: Final[Mapping[str, tuple[float, ...]]] = {
    name: SECONDS
    for name in (
        "temporal_activity_schedule_to_start_latency",
        "temporal_activity_execution_latency",
        "temporal_activity_succeed_endtoend_latency",
        "temporal_workflow_task_schedule_to_start_latency",
        "temporal_workflow_task_execution_latency",
        "temporal_workflow_task_replay_latency",
        "temporal_request_latency",
        BATCH_WORST_WAIT.name,
    )
}
"""Buckets of the SDK's exporter, whose own are too coarse below 50 ms."""
