"""What goes into the checkpoint activities and comes out. Fields are only ever added, with defaults."""

from emberpool.activities.models import CallInput, CallOutput
from emberpool.pool.model.checkpoint import Checkpoint

DEFAULT_CHECKPOINT_S = 1800.0


class CheckpointInput(CallInput):
    """Save what the sandbox's jobs have changed."""

    time_limit_s: float = DEFAULT_CHECKPOINT_S


class CheckpointOutput(CallOutput):
    """Where it is now."""

    checkpoint: Checkpoint | None = None
    """None only beside a step."""


class RestoreInput(CallInput):
    """Restore a checkpoint, before the sandbox's first command."""

    checkpoint: Checkpoint
    time_limit_s: float = DEFAULT_CHECKPOINT_S
