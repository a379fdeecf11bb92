"""Workflows that open several sandboxes together, or one with an image. Imported inside Temporal's sandbox."""

from datetime import timedelta

from temporalio import workflow

from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.group import SandboxGroup
from emberpool.workflows.sandbox import Sandbox


class GroupPlan(Frozen):
    """What a group, or with `size` 0 a single sandbox, is to do."""

    profile: str
    task_queue: str
    caller: str = "tester"
    size: int = 0
    command: str = "true"
    image: str = ""
    peers: bool = False
    wait_timeout_s: float = 60.0
    pause_s: float = 0.0


class GroupSeen(Frozen):
    """What it saw, by rank."""

    results: tuple[CommandResult, ...] = ()
    pods: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    recycled: tuple[str, ...] = ()
    error: str = ""

    @property
    def texts(self) -> list[str]:
        """What the commands printed."""
        return [result.text for result in self.results]


@workflow.defn
class Together:
    """Runs a command on every member of a group at once."""

    @workflow.run
    async def run(self, plan: GroupPlan) -> GroupSeen:
        try:
            group = SandboxGroup.open(
                plan.size,
                profile=plan.profile,
                caller=plan.caller,
                peers=plan.peers,
                env={"EXTRA": "more"},
                wait_timeout=timedelta(seconds=plan.wait_timeout_s),
                task_queue=plan.task_queue,
            )
            async with group:
                results = await group.run(plan.command)
                if plan.pause_s:
                    await workflow.sleep(plan.pause_s)
        except EmberpoolError as error:
            return GroupSeen(error=f"{type(error).__name__}: {error}")
        leases = [member.lease for member in group if member.lease]
        return GroupSeen(
            results=tuple(results),
            pods=tuple(lease.pod for lease in leases),
            sources=tuple(lease.source for lease in leases),
            recycled=tuple(member.recycled.outcome for member in group if member.recycled),
        )


@workflow.defn
class OneOfAnImage:
    """Runs a command in one sandbox of an image."""

    @workflow.run
    async def run(self, plan: GroupPlan) -> GroupSeen:
        sandbox = Sandbox.open(
            profile=plan.profile,
            caller=plan.caller,
            image=plan.image,
            wait_timeout=timedelta(seconds=plan.wait_timeout_s),
            task_queue=plan.task_queue,
        )
        async with sandbox:
            result = await sandbox.run(plan.command)
            if plan.pause_s:
                await workflow.sleep(plan.pause_s)
        assert sandbox.lease is not None
        return GroupSeen(results=(result,), pods=(sandbox.lease.pod,), sources=(sandbox.lease.source,))


GROUP_FLOWS = (Together, OneOfAnImage)
