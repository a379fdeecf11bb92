"""A user workflow around checkpoints. Imported inside Temporal's sandbox, so nothing of pytest is here."""

from temporalio import workflow

from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.sandbox import Sandbox


class CheckpointPlan(Frozen):
    """One sandbox: what it starts from, and what it runs."""

    profile: str
    task_queue: str
    command: str
    from_: Checkpoint | None = None
    image: str = ""


class CheckpointSeen(Frozen):
    """What came of it."""

    stdout: str
    checkpoint: Checkpoint


@workflow.defn
class RunAndSave:
    """Runs the command and saves what it left."""

    @workflow.run
    async def run(self, plan: CheckpointPlan) -> CheckpointSeen:
        opened = Sandbox.open(
            profile=plan.profile, caller="saver", image=plan.image, from_=plan.from_, task_queue=plan.task_queue
        )
        async with opened as sandbox:
            text = (await sandbox.run(plan.command)).check().text
            return CheckpointSeen(stdout=text, checkpoint=await sandbox.checkpoint())


CHECKPOINT_FLOWS = [RunAndSave]
