"""`emberpool run` with more than a tool call takes: local files and folders in and out, stdin of any size. Then the
command runs in a session of its own.
"""

import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client

from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.errors import EmberpoolError, InvalidInput
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.worker.cli.streaming import write_piece
from emberpool.worker.remote.session import RemoteSandbox

IDLE = timedelta(minutes=2)
"""If we are killed, the session closes itself this long after the command's end."""
STDIN_PATH = "/tmp/.emberpool-stdin"


@dataclass(frozen=True)
class Moves:
    """What goes in before the command and comes out after it, as (from, to)."""

    uploads: Sequence[tuple[str, str]] = ()
    downloads: Sequence[tuple[str, str]] = ()
    stdin: Path | None = None
    """A file with more than a payload takes."""

    def __bool__(self) -> bool:
        return bool(self.uploads or self.downloads or self.stdin)


@dataclass(frozen=True)
class Ran:
    """The command's end, where it ran, and the first download that failed."""

    result: CommandResult
    session_id: str
    failed: EmberpoolError | None = None


async def run_in_session(client: Client, given: ToolCallInput, moves: Moves, quiet: bool) -> Ran:
    """Upload, run, download, whatever the command's end; its output is written as it comes, unless `quiet`."""
    async with RemoteSandbox.open(
        client,
        profile=given.profile,
        caller=given.caller,
        image=given.image,
        reuse_key=given.reuse_key,
        binding=given.binding(),
        idle_timeout=IDLE,
        wait_timeout=timedelta(seconds=given.wait_timeout_s),
        task_queue=given.task_queue,
    ) as sandbox:
        for file in given.files:
            await sandbox.write_file(file.path, file.text, mode=file.mode)
        for here, there in moves.uploads:
            await sandbox.upload(here, there)
        command = given.command
        if moves.stdin is not None:
            await sandbox.upload(moves.stdin, STDIN_PATH)
            command = command.model_copy(update={"stdin": b"", "stdin_path": STDIN_PATH})
        running = await sandbox.start(command)
        if not quiet:
            async with aclosing(running.stream()) as pieces:
                async for piece in pieces:
                    write_piece(sys.stdout, piece.stdout)
                    write_piece(sys.stderr, piece.stderr)
        result = await running.result()
        return Ran(result, sandbox.session_id, await _downloaded(sandbox, moves.downloads))


async def _downloaded(sandbox: RemoteSandbox, downloads: Sequence[tuple[str, str]]) -> EmberpoolError | None:
    failed: EmberpoolError | None = None
    for there, here in downloads:
        try:
            await sandbox.download(there, here)
        except EmberpoolError as error:
            failed = failed or error
    return failed


def upload_pair(text: str) -> tuple[str, str]:
    """HERE[:THERE]: a local path, and where it goes; its name in /work by default. Raises InvalidInput."""
    here, _, there = text.partition(":")
    if not here:
        raise InvalidInput("--upload", f"{text!r} is not HERE[:THERE]")
    return here, there or Path(here).resolve().name


def download_pair(text: str) -> tuple[str, str]:
    """THERE[:HERE]: a path of the sandbox, and where it comes; its name in this folder by default."""
    there, _, here = text.partition(":")
    if not there or not (here or Path(there).name):
        raise InvalidInput("--download", f"{text!r} is not THERE[:HERE]")
    return there, here or Path(there).name
