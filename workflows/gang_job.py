"""GangJob: one job of several pods, as a workflow. Starts from plain JSON too."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from emberpool.activities import names
from emberpool.activities.errors import to_temporal
from emberpool.pool.model.command import Command, CommandResult, Outcome
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.gang_job import GangJobInput, GangJobResult
from emberpool.workflows.group import SandboxGroup
from emberpool.workflows.plain import NOT_GIVEN, Plain, parsed
from emberpool.workflows.sandbox import Sandbox
from emberpool.workflows.searchable import make_searchable

__all__ = ["GangJob", "GangJobInput", "GangJobResult"]


@workflow.defn(name=names.GANG_JOB)
class GangJob:
    """Runs a command on every rank of a gang; a failing command is a result, not a failed workflow."""

    def __init__(self) -> None:
        self._failed_rank: int | None = None

    @workflow.run
    async def run(self, given: Plain[GangJobInput] = NOT_GIVEN) -> GangJobResult:
        """Open all, bind, run, leave. The first rank that does not succeed ends the others; so does a lost sandbox,
        which fails the workflow with its typed error."""
        job = parsed(GangJobInput, given)
        try:
            return await self._job(job)
        except EmberpoolError as error:
            raise to_temporal(error) from error

    async def _job(self, job: GangJobInput) -> GangJobResult:
        group = SandboxGroup.open(
            job.size,
            profile=job.profile,
            caller=job.caller,
            peers=job.peers,
            port=job.port,
            env=job.env,
            files=job.files,
            binding=job.binding(),
            from_=job.checkpoint or job.checkpoints or None,
            image=job.image,
            reuse_key=job.reuse_key,
            hold=timedelta(seconds=job.hold_s),
            wait_timeout=timedelta(seconds=job.wait_timeout_s),
            priority=job.priority,
            task_queue=job.task_queue,
        )
        async with group:
            try:
                results = await self._ranks(group, job.by_rank())
            except EmberpoolError as error:
                make_searchable(group[0], type(error).__name__)
                raise
            make_searchable(group[0], _outcome(results, self._failed_rank))
        leases = [member.lease for member in group if member.lease]
        return GangJobResult(
            results=tuple(results),
            failed_rank=self._failed_rank,
            pods=tuple(lease.pod for lease in leases),
            sources=tuple(lease.source for lease in leases),
            ttfc_s=max((member.ttfc_s for member in group if member.ttfc_s is not None), default=None),
        )

    async def _ranks(self, group: SandboxGroup, commands: tuple[Command, ...]) -> list[CommandResult]:
        """Every rank's end. A rank alone waits for its peers for ever, so the first failure cancels the rest."""
        tasks = [
            asyncio.create_task(self._rank(rank, member, command))
            for rank, (member, command) in enumerate(zip(group, commands, strict=True))
        ]
        try:
            pending = tasks
            while pending:
                done, pending = await workflow.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if self._failed_rank is not None or any(_raised(task) for task in done):
                    break
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not is_cancelled_exception(end):
                raise end
        return [CommandResult(outcome=Outcome.CANCELLED) if isinstance(end, BaseException) else end for end in ends]

    async def _rank(self, rank: int, member: Sandbox, command: Command) -> CommandResult:
        result = await member.run(command, summary=f"rank {rank}: {command.title()}")
        if not result.ok and self._failed_rank is None:
            self._failed_rank = rank
        return result


def _raised(task: "asyncio.Task[CommandResult]") -> bool:
    return task.cancelled() or task.exception() is not None


def _outcome(results: list[CommandResult], failed_rank: int | None) -> str:
    """What people search for: how the rank that failed first ended."""
    if failed_rank is None:
        return Outcome.EXITED.value
    outcome = results[failed_rank].outcome
    return "exited_non_zero" if outcome is Outcome.EXITED else outcome.value
