"""A user workflow that moves files. Imported inside Temporal's sandbox, so nothing of pytest is here."""

from datetime import timedelta
from typing import Literal

from temporalio import workflow

from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.files import FileEntry, FileName, Moved
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.sandbox import Sandbox


class FileStep(Frozen):
    """One call."""

    do: Literal["upload", "download", "output", "run", "list", "remove"]
    path: FileName = ""
    url: str = ""
    unpack: bool = False
    command: Command | None = None


class FilePlan(Frozen):
    """Calls in their order, on one sandbox."""

    profile: str
    task_queue: str
    steps: tuple[FileStep, ...]


class FilesSeen(Frozen):
    """What came of them."""

    moved: tuple[Moved, ...] = ()
    results: tuple[CommandResult, ...] = ()
    entries: tuple[FileEntry, ...] = ()


@workflow.defn
class MoveFiles:
    """Does the steps; an error of one is the workflow's."""

    @workflow.run
    async def run(self, plan: FilePlan) -> FilesSeen:
        moved: list[Moved] = []
        results: list[CommandResult] = []
        entries: tuple[FileEntry, ...] = ()
        async with Sandbox.open(profile=plan.profile, caller="files", task_queue=plan.task_queue) as sandbox:
            for step in plan.steps:
                if step.do == "upload":
                    moved.append(await sandbox.upload(step.url, step.path, unpack=step.unpack))
                elif step.do == "download":
                    limit = timedelta(minutes=5)
                    moved.append(await sandbox.download(step.path, step.url, time_limit=limit))
                elif step.do == "output":
                    moved.append(await sandbox.download_output(results[-1], step.url))
                elif step.do == "list":
                    entries = await sandbox.list_files(step.path)
                elif step.do == "remove":
                    await sandbox.remove(step.path, recursive=True)
                elif step.command is not None:
                    results.append(await sandbox.run(step.command))
        return FilesSeen(moved=tuple(moved), results=tuple(results), entries=entries)


@workflow.defn
class SendTooMuch:
    """Calls with an argument that no payload takes."""

    @workflow.run
    async def run(self, plan: FilePlan) -> None:
        async with Sandbox.open(profile=plan.profile, caller="files", task_queue=plan.task_queue) as sandbox:
            await sandbox.run("true", env={"LARGE": "x" * 3_000_000})


FILE_FLOWS = [MoveFiles, SendTooMuch]
