"""Saving and restoring a sandbox's files, from the workflow's side."""

from datetime import timedelta

from emberpool.activities import names
from emberpool.activities.checkpoint_models import CheckpointInput, CheckpointOutput, RestoreInput
from emberpool.activities.models import CallOutput
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.errors import InvalidInput
from emberpool.workflows.handle import Handle
from emberpool.workflows.invoker import Invoker

CHECKPOINT_LIMIT = timedelta(minutes=30)
MARGIN = timedelta(seconds=60)


def image_of(checkpoint: Checkpoint | None, image: str) -> str:
    """The image of a sandbox that begins with a checkpoint. Raises InvalidInput if another one is asked for."""
    if checkpoint is None:
        return image
    if image and image != checkpoint.image:
        raise InvalidInput("from_", f"the checkpoint is of image {checkpoint.image!r}, and {image!r} is asked for")
    return checkpoint.image


async def save_checkpoint(sandbox: Invoker, limit: timedelta) -> Checkpoint:
    """One activity of the main queue: it may be long, and heartbeats the bytes saved."""
    output = await sandbox.invoke(
        names.SAVE_CHECKPOINT,
        lambda ref: CheckpointInput(ref=ref, time_limit_s=limit.total_seconds()),
        CheckpointOutput,
        summary="save a checkpoint",
        queue=sandbox.task_queue,
        config={"start_to_close_timeout": limit + MARGIN},
    )
    if output.checkpoint is None:
        raise RuntimeError("an answered checkpoint is one")
    return output.checkpoint


async def restore(sandbox: Invoker, checkpoint: Checkpoint) -> None:
    """Restore before the sandbox's first command. To restore again what is restored changes nothing."""
    await sandbox.invoke(
        names.RESTORE_CHECKPOINT,
        lambda ref: RestoreInput(ref=ref, checkpoint=checkpoint),
        CallOutput,
        summary=f"restore checkpoint {checkpoint.sha256[:12]}",
        queue=sandbox.task_queue,
        config={"start_to_close_timeout": CHECKPOINT_LIMIT + MARGIN},
    )


async def restore_entered(sandbox: Handle, checkpoint: Checkpoint) -> None:
    """Restore as a sandbox is entered; if that fails it is left, since its block never begins."""
    try:
        await restore(sandbox, checkpoint)
    except BaseException:
        await sandbox.close()
        raise
