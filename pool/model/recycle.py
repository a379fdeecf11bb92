"""What a reset proved."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from emberpool.pool.model.frozen import Frozen


class RecycleTier(StrEnum):
    """How a pod was reset, strongest first."""

    ROOM = "room"
    """The room was ended: its processes killed with their namespace, its upper layer dropped, a new room made."""
    RESTART = "restart"
    """The container was restarted in place, with volumes wiped."""
    SWEEP = "sweep"
    """Processes killed and scratch compared with a baseline manifest."""
    NONE = "none"
    """Not reset; such a pod is drained."""


class Attestation(Frozen):
    """emberd's own account of a reset: every check by name, true if it held. All must hold, or the pod is drained."""

    tier: RecycleTier
    checks: Mapping[str, bool] = Field(default_factory=dict[str, bool])
    """processes, listeners, scratch, shared_memory, mounts, vram, manifest: true means that nothing of the kind was
    left. `tier` stands there, as false, if the profile demands a stronger one."""
    duration_ms: float = 0.0
    uses: int = 0
    """Leases that the pod has served."""
    at: float = 0.0
    """When it was made: seconds since 1970 by the pod's clock; 0 if emberd did not say."""
    age_s: float = 0.0
    """Seconds that the pod's emberd had run by then."""

    def demanding(self, tier: RecycleTier) -> "Attestation":
        """The same, or one that does not hold if its tier is weaker than `tier`."""
        ladder = list(RecycleTier)
        if ladder.index(self.tier) <= ladder.index(tier):
            return self
        return self.model_copy(update={"checks": {**self.checks, "tier": False}})

    @property
    def holds(self) -> bool:
        """Whether the reset is proved."""
        return self.tier is not RecycleTier.NONE and bool(self.checks) and all(self.checks.values())


class RecycleOutcome(StrEnum):
    """What became of a released pod."""

    IDLE = "idle"
    """Attested, warm, tagged with the caller."""
    HANDED_OVER = "handed_over"
    """Attested and given at once to a waiting request of the same tag."""
    DRAINED = "drained"
    """Deleted: not attested, worn out, over the ceiling, or its place was needed by another caller."""
    ALREADY = "already"
    """Somebody else had recycled or deleted it."""
    NO_POD = "no_pod"
    """The request never held a pod."""
