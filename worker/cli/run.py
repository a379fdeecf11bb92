"""`emberpool run`: one command in a sandbox, as if it ran here."""

import asyncio
import getpass
import shutil
import sys
import tempfile
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emberpool.pool.model.binding import Bundle
from emberpool.pool.model.command import DEFAULT_TIME_LIMIT_S, MAX_STDIN, Command, CommandResult, Outcome
from emberpool.pool.model.errors import InvalidInput, SandboxLost
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.rollout import TextFile
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.worker.cli.explain import explain
from emberpool.worker.cli.output import print_error, print_json
from emberpool.worker.cli.running import run_until_stopped
from emberpool.worker.cli.temporal import QUEUE, Address, AsJson, Namespace, TaskQueue, TemporalProfile, require_worker

if TYPE_CHECKING:
    from temporalio.client import Client

    from emberpool.worker.cli.run_session import Moves
    from emberpool.worker.run import Reach

TIMED_OUT, NOT_RUN, OUT_OF_MEMORY, BY_SIGNAL = 124, 125, 137, 128
"""Exit codes beside the command's own: time limit (as `timeout` has it), never ran or its end is not known, memory
or disk, and 128 + N for signal N."""


SLACK = timedelta(minutes=5)
"""What a call may take beside the wait and the command, until Temporal ends it: starts of pods, retries."""


def command(
    argv: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, after two dashes.")],
    profile: Annotated[str, typer.Option(help="Whose pool.")] = "default",
    caller: Annotated[str | None, typer.Option(help="Whose used pods it may get; your user name by default.")] = None,
    shell: Annotated[bool, typer.Option("--shell", help="COMMAND is one text for /bin/sh -c.")] = False,
    file: Annotated[
        list[str] | None, typer.Option(metavar="HERE[:THERE]", help="Text file to put into the sandbox first.")
    ] = None,
    upload: Annotated[
        list[str] | None, typer.Option(metavar="HERE[:THERE]", help="File or folder of any size to put in first.")
    ] = None,
    download: Annotated[
        list[str] | None, typer.Option(metavar="THERE[:HERE]", help="File or folder to fetch afterwards.")
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Python packages that the command can import.")
    ] = None,
    bundle: Annotated[
        str | None, typer.Option(metavar="URL@SHA256", help="Archive of code to unpack into /work first.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Environment of the command.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Folder in the sandbox; /work by default.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on.")] = False,
    image: Annotated[str, typer.Option(help="One of the profile's images.")] = "",
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", min=0.001)] = DEFAULT_TIME_LIMIT_S,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="Longest wait for a pod.")] = 300.0,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
    temporal_profile: TemporalProfile = None,
    task_queue: TaskQueue = QUEUE,
) -> None:
    """Run one command in a sandbox; its output is ours, as it comes, its exit status too.

    [bold]Exit status[/bold]: the command's own, or 124 its time limit passed, 137 it took too much memory, 128+N signal
    N ended it, 125 it did not run or its end is not known (no pod, a lost sandbox, a wrong option, no Temporal). A
    command may end with 125 itself: with --json, "status" tells one from the other. A download that fails is 125 only
    if the command went well. Files of --upload and --download, and input over 1 MiB, go through the blob store.

    [bold]Examples[/bold]

      emberpool run -- python3 -c 'print(6 * 7)'

      emberpool run --file test_a.py --time-limit 30 --json -- pytest -q test_a.py

      emberpool run --shell -- 'ls | wc -l'

      emberpool run --upload src --download out:results -- python3 src/main.py

      gzip -dc log.gz | emberpool run --stdin -- sort -u

      emberpool run --requirements requirements.txt -- python3 -c 'import numpy'
    """
    from emberpool.worker.cli.run_session import Moves, download_pair, upload_pair
    from emberpool.worker.run import Reach

    given_stdin: bytes | Path = b""
    try:
        given_stdin = _stdin() if stdin else b""
        if shell and len(argv) != 1:
            raise InvalidInput("--shell", f"takes one text, and {len(argv)} words were given: put it in quotes")
        given = checked(
            ToolCallInput,
            profile=profile,
            caller=caller or getpass.getuser(),
            command=checked(
                Command,
                shell=argv[0] if shell else None,
                argv=None if shell else tuple(argv),
                env=dict(_pair(one) for one in env or ()),
                cwd=cwd,
                stdin=given_stdin if isinstance(given_stdin, bytes) else b"",
                time_limit_s=time_limit,
            ),
            files=tuple(_file(one) for one in file or ()),
            image=image,
            wait_timeout_s=wait,
            task_queue=task_queue,
            bundle=_bundle(bundle) if bundle else None,
            requirements=_text("--requirements", requirements) if requirements else "",
        )
        moves = Moves(
            [upload_pair(one) for one in upload or ()],
            [download_pair(one) for one in download or ()],
            given_stdin if isinstance(given_stdin, Path) else None,
        )
        reach = Reach(address, namespace, temporal_profile)
        code = run_until_stopped(_run(given, moves, reach, as_json))
    except Exception as error:
        words = explain(error)
        if as_json:
            print_json({**_status(error), "message": words.cause, "remedy": words.remedy})
        else:
            print_error(words.cause, words.remedy)
        code = NOT_RUN
    finally:
        if isinstance(given_stdin, Path):
            given_stdin.unlink()
    raise typer.Exit(code)


async def _run(given: ToolCallInput, moves: "Moves", reach: "Reach", as_json: bool) -> int:
    from emberpool.activities import names
    from emberpool.worker.cli.streaming import stream_to
    from emberpool.worker.run import connect_client

    client = await connect_client(reach=reach)
    await require_worker(client, given.task_queue)
    if moves:
        return await _in_session(client, given, moves, as_json)
    handle: Any = await client.start_workflow(
        names.TOOL_CALL,
        given,
        id=f"emberpool-run/{uuid.uuid4().hex[:12]}",
        task_queue=given.task_queue,
        result_type=CommandResult,
        execution_timeout=timedelta(seconds=given.wait_timeout_s + given.command.time_limit_s) + SLACK,
        static_summary=f"run: {given.command.title()}",
    )
    try:
        result = await (handle.result() if as_json else stream_to(client, handle, given.task_queue))
    except asyncio.CancelledError:
        # Ctrl-C kills the command there too, and its pod goes back.
        await asyncio.shield(handle.cancel())
        raise
    _tell(result, handle.id, as_json)
    return exit_code(result)


async def _in_session(client: "Client", given: ToolCallInput, moves: "Moves", as_json: bool) -> int:
    from emberpool.worker.cli.run_session import run_in_session

    ran = await run_in_session(client, given, moves, quiet=as_json)
    _tell(ran.result, ran.session_id, as_json)
    code = exit_code(ran.result)
    if ran.failed is None:
        return code
    words = explain(ran.failed)
    print_error(words.cause, words.remedy)
    return code or NOT_RUN


def exit_code(result: CommandResult) -> int:
    """What the shell is told of a command's end."""
    match result.outcome:
        case Outcome.EXITED:
            return result.exit_code or 0
        case Outcome.TIMED_OUT:
            return TIMED_OUT
        case Outcome.OOM_KILLED | Outcome.DISK_FULL:
            return OUT_OF_MEMORY
        case Outcome.SIGNALED:
            return BY_SIGNAL + (result.signal or 0)
        case Outcome.CANCELLED:
            return NOT_RUN


def _tell(result: CommandResult, workflow_id: str, as_json: bool) -> None:
    if as_json:
        told = result.model_dump(mode="json", exclude={"outcome", "stdout", "stderr"})
        texts = {"stdout": result.text, "stderr": result.error_text}
        print_json({"status": result.outcome.value, **told, **texts, "workflow_id": workflow_id})
        return
    if result.outcome is Outcome.TIMED_OUT:
        print_error(f"the command's time limit of {result.time_limit_s:g} s passed", "raise --time-limit")
    elif result.outcome is Outcome.OOM_KILLED:
        print_error("the command went over its memory limit", "raise the profile's limits.memory_mb")
    elif result.outcome is Outcome.DISK_FULL:
        print_error("the sandbox's files went over its disk limit", "raise the profile's limits.disk_mb")
    elif result.outcome is Outcome.SIGNALED:
        print_error(f"signal {result.signal} ended the command")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput("--env", f"{text!r} is not NAME=VALUE")
    return name, value


def _file(text: str) -> TextFile:
    here, _, there = text.partition(":")
    path = Path(here)
    try:
        content, mode = path.read_text(), path.stat().st_mode & 0o777
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("--file", f"{here} cannot be read as text: {error}") from error
    return TextFile(path=there or path.name, text=content, mode=mode)


def _text(option: str, path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(option, f"{path} cannot be read as text: {error}") from error


def _bundle(text: str) -> Bundle:
    url, _, sha256 = text.rpartition("@")
    if not url:
        raise InvalidInput("--bundle", f"{text!r} is not URL@SHA256")
    return checked(Bundle, url=url, sha256=sha256)


def _stdin() -> bytes | Path:
    """All of standard input; what is over a payload, as a temporary file."""
    data = sys.stdin.buffer.read(MAX_STDIN + 1)
    if len(data) <= MAX_STDIN:
        return data
    with tempfile.NamedTemporaryFile(prefix="emberpool-stdin-", delete=False) as file:
        file.write(data)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return Path(file.name)


def _status(error: BaseException) -> dict[str, str]:
    """not_run, or unknown where nobody can know whether the command ran; with the error's type."""
    from temporalio.client import WorkflowFailureError

    from emberpool.activities.errors import typed as typed_error

    typed = typed_error(error.cause) if isinstance(error, WorkflowFailureError) else error
    lost = isinstance(typed, SandboxLost) and typed.executed != "no"
    return {"status": "unknown" if lost else "not_run", "error": type(typed or error).__name__}
