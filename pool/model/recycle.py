"""What a reset proved."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from emberpool.pool.model.frozen import Frozen

NOT_ATTESTED = "not_attested"
"""How the reason begins that a quarantined pod is drained for."""


class RecycleTier(StrEnum):
    """How a pod was reset, strongest first."""

    ROOM = "room"
    """The room was ended: its processes killed with their namespace, its upper layer dropped, a new room made."""
    RESTART = "restart"
    """The container was restarted in place, with volumes wiped. For pods without namespaces for rooms; where there are
    some, the tier is `room` all the same, and `restarted` tells of it."""
    SWEEP = "sweep"
    """Processes killed and scratch compared with a baseline manifest."""
    NONE = "none"
    """Not reset; such a pod is drained."""

    def is_as_strong_as(self, other: "RecycleTier") -> bool:
        """Whether it proves at least as much."""
        ladder = list(RecycleTier)
        return ladder.index(self) <= ladder.index(other)


class Attestation(Frozen):
    """emberd's own account of a reset: every check by name, true if it held. All must hold, or the pod is drained."""

    tier: RecycleTier
    checks: Mapping[str, bool] = Field(default_factory=dict[str, bool])
    """processes, listeners, scratch, shared_memory, mounts, vram, manifest: true means that nothing of the kind was
    left; new_process: that one can be started. `tier` stands there, as false, if the profile demands a stronger one."""
    duration_ms: float = 0.0
    uses: int = 0
    """Leases that the pod has served."""
    at: float = 0.0
    """When it was made: seconds since 1970 by the pod's clock; 0 if emberd did not say."""
    age_s: float = 0.0
    """Seconds that the pod's emberd had run by then."""
    restarted: bool = False
    """Whether that emberd was started since the last lease, the container with it: none of its jobs has run there."""

    def demanding(self, tier: RecycleTier) -> "Attestation":
        """The same, or one that does not hold if its tier is weaker than `tier`."""
        if self.tier.is_as_strong_as(tier):
            return self
        return self.model_copy(update={"checks": {**self.checks, "tier": False}})

    @property
    def holds(self) -> bool:
        """Whether the reset is proved."""
        return self.tier is not RecycleTier.NONE and bool(self.checks) and all(self.checks.values())

    @property
    def quarantined_for(self) -> str:
        """The reason that the index drains the pod for: `not_attested`, and which checks failed; empty if it holds."""
        failed = ", ".join(name for name, held in self.checks.items() if not held)
        return "" if self.holds else f"{NOT_ATTESTED}: {failed}" if failed else NOT_ATTESTED


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
