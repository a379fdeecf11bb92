"""What a provider is asked to create, and the minimal view of what exists."""

from enum import StrEnum

from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.model.recycle import RecycleTier


class Phase(StrEnum):
    """What a provider knows of a pod."""

    PENDING = "pending"
    """Asked for; emberd does not answer yet."""
    READY = "ready"
    """emberd answers."""
    FAILED = "failed"
    """Ended, or will never become ready; `reason` says why."""


class PodFacts(Frozen):
    """A pod as its provider sees it, replaced on every change, never edited."""

    name: PodName
    uid: PodUid
    phase: Phase
    endpoint: str = ""
    image: str = ""
    reason: str = ""
    """For FAILED: one word (exited, oom, evicted, image_pull, unschedulable, node_lost, ...) and a detail."""
    tier: RecycleTier | None = None
    """How its emberd resets it between leases: the strongest way that the pod allows. None while nobody knows."""
