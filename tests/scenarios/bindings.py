"""A user workflow that hands a bound sandbox on. Imported inside Temporal's sandbox, so nothing of pytest is here."""

from typing import Any

from temporalio import workflow

from emberpool.pool.model.binding import Binding
from emberpool.pool.model.claim import SandboxRef, Source
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.sandbox import Sandbox


class BoundPlan(Frozen):
    """What is bound, and the command that looks at it."""

    profile: str
    task_queue: str
    command: str
    caller: str = "bound"
    binding: Binding = Binding()
    ref: SandboxRef | None = None
    said: tuple[str, ...] = ()


class BoundSeen(Frozen):
    """What the command said in each run, and the pod of the last one."""

    said: tuple[str, ...]
    pod: str
    source: Source | None = None


@workflow.defn
class BoundHandOver:
    """Looks at what is bound, hands the sandbox to the next run of itself, and looks again there."""

    @workflow.run
    async def run(self, plan: BoundPlan) -> BoundSeen:
        where: dict[str, Any] = {"profile": plan.profile, "caller": plan.caller, "task_queue": plan.task_queue}
        if plan.ref is None:
            async with Sandbox.open(binding=plan.binding, **where) as sandbox:
                said = (await sandbox.run(plan.command)).text
                ref = await sandbox.detach()
            workflow.continue_as_new(plan.model_copy(update={"ref": ref, "said": (said,)}))
        async with Sandbox.adopt(plan.ref, task_queue=plan.task_queue) as sandbox:
            said = (await sandbox.run(plan.command)).text
        lease = sandbox.lease
        return BoundSeen(
            said=(*plan.said, said), pod=lease.pod if lease else "", source=lease.source if lease else None
        )


BINDING_FLOWS = [BoundHandOver]
