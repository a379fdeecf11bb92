"""A codec on client and workers: everything works as without one, and of commands, environment, files, output and
errors no word is to be found in what Temporal keeps. examples/encryption.py is the codec, docs/how-to/encrypt.md its
page."""

import asyncio
import base64
import json
import subprocess
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from encryption import codec_server, converter
from fixtures.command_line import EMBERPOOL, clean_env
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeActivityExecutionRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
)
from temporalio.client import WorkflowFailureError
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.exceptions import ApplicationError

from emberpool.activities import names
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import InvalidInput, SandboxFileError
from emberpool.pool.model.rollout import TextFile
from emberpool.pool.model.tool import RunToolInput
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.worker.data_converter import load_data_converter
from emberpool.worker.remote.session import RemoteSandbox
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.worker.stack.temporal_server import find_temporal

WORD = "Aquamarine-7731"
EXAMPLES = Path(__file__).parents[2] / "examples"


class Folder(StorageDriver):
    """Payloads in files, as a driver for a bucket has them in objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def name(self) -> str:
        return "folder"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        kept = [self.folder / uuid.uuid4().hex for _ in payloads]
        for path, payload in zip(kept, payloads, strict=True):
            path.write_bytes(payload.SerializeToString())
        return [StorageDriverClaim(claim_data={"file": path.name}) for path in kept]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [Payload.FromString((self.folder / claim.claim_data["file"]).read_bytes()) for claim in claims]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The codec's file."""
    path = tmp_path_factory.mktemp("codec") / "keys"
    path.write_text(f"old {'11' * 32}\nnew {'22' * 32}\n")
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sealed(
    stack: EmbeddedStack, keys: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[tuple[Site, Path]]:
    """A deployment whose worker and client have the codec, and keep large payloads in a folder."""
    folder = tmp_path_factory.mktemp("stored")
    storage = ExternalStorage(drivers=[Folder(folder)], payload_size_threshold=50_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODEC_KEYS", str(keys))
        own = replace(converter(), external_storage=storage)
        async with running_site(stack, site_settings(stack), converter=own) as site:
            yield site, folder


def hides(data: bytes) -> bool:
    """Whether the word is in it neither as it is nor in base64, at whatever place of a longer text it stood."""
    word = WORD.encode()
    shapes = [base64.b64encode(b"\0" * skip + word)[4 if skip else 0 : -4] for skip in range(3)]
    return not any(shape in data for shape in (word, *shapes))


async def history(site: Site, workflow_id: str) -> bytes:
    """As the server has it, of every run, without decoding."""
    request = GetWorkflowExecutionHistoryRequest(
        namespace=site.client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    answer = await site.client.workflow_service.get_workflow_execution_history(request)
    assert not answer.next_page_token and len(answer.history.events) > 3
    return answer.SerializeToString()


def test_the_check_finds_what_it_looks_for() -> None:
    """Plain, and in base64 at each of three places: else the tests below would prove nothing."""
    for skip in range(4):
        text = b"x" * skip + WORD.encode() + b"y"
        assert not hides(text) and not hides(base64.b64encode(text))
    assert hides(b"nothing")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_tool_calls_history_tells_nothing(sealed: tuple[Site, Path]) -> None:
    """Command, environment, stdin, files and output, and the summaries that people read in the UI."""
    site, _ = sealed
    command = Command(shell=f"echo {WORD} $A; cat; cat f >&2", env={"A": WORD}, stdin=WORD.encode())
    given = ToolCallInput(
        profile="py", caller="ann", command=command, task_queue=site.queue, files=(TextFile(path="f", text=WORD),)
    )
    workflow = f"sealed-{uuid.uuid4().hex[:8]}"
    handle = await site.client.start_workflow(
        names.TOOL_CALL, given, id=workflow, task_queue=site.queue, static_summary=f"about {WORD}"
    )
    result = await handle.result()
    assert not hides(json.dumps(result).encode())
    assert hides(await history(site, workflow))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_sessions_history_tells_nothing(sealed: tuple[Site, Path]) -> None:
    """Updates and their answers, files, an error that names a file, and the heartbeats of a command that runs."""
    site, _ = sealed
    async with RemoteSandbox.open(site.client, profile="py", caller="ann", task_queue=site.queue) as sandbox:
        await sandbox.write_file("f", WORD)
        assert await sandbox.read_file("f") == WORD.encode()
        with pytest.raises(SandboxFileError, match=WORD):
            await sandbox.read_file(f"no-{WORD}")
        running = await sandbox.start(f"echo {WORD}; sleep 60")

        async def beaten() -> bool:
            described = await _described(site, sandbox.session_id)
            assert hides(described.SerializeToString())
            return any(one.HasField("heartbeat_details") for one in described.pending_activities)

        await wait_until(beaten)
        assert (await running.poll()).stdout_tail == f"{WORD}\n".encode()
        await running.kill()
        assert (await sandbox.run(f"echo {WORD}")).text == f"{WORD}\n"
    assert hides(await history(site, sandbox.session_id))


@pytest.mark.asyncio(loop_scope="module")
async def test_an_errors_text_tells_nothing(sealed: tuple[Site, Path]) -> None:
    """Typed errors cross as before, with their fields; Temporal sees the type alone."""
    site, _ = sealed
    given = ToolCallInput(profile=f"no-{WORD}", caller="ann", command=Command(argv=("true",)), task_queue=site.queue)
    workflow = f"sealed-{uuid.uuid4().hex[:8]}"
    with pytest.raises(WorkflowFailureError) as caught:
        await site.client.execute_workflow(names.TOOL_CALL, given, id=workflow, task_queue=site.queue)
    cause = caught.value.cause
    assert isinstance(cause, ApplicationError) and cause.type == InvalidInput.__name__
    assert WORD in cause.message and cause.details[0] == "profile"
    raw = await history(site, workflow)
    assert hides(raw) and b"InvalidInput" in raw


@pytest.mark.asyncio(loop_scope="module")
async def test_a_standalone_call_tells_nothing(sealed: tuple[Site, Path]) -> None:
    """Its input and outcome, and the record that it makes of the command's end."""
    site, _ = sealed
    tools = ToolClient(site.client, profile="py", caller="ann", task_queue=site.queue)
    given = RunToolInput(profile="py", caller="ann", command=Command(shell=f"echo {WORD}"))
    call = f"call-{uuid.uuid4().hex[:8]}"
    assert (await tools.call(call, given)).result.text == f"{WORD}\n"
    assert (await tools.call(call, given)).result.text == f"{WORD}\n", "the same call's result, read again"
    request = DescribeActivityExecutionRequest(
        namespace=site.client.namespace, activity_id=tools.activity_id(call), include_input=True, include_outcome=True
    )
    described = await site.client.workflow_service.describe_activity_execution(request)
    assert described.HasField("outcome") and described.HasField("input")
    assert hides(described.SerializeToString())


@pytest.mark.asyncio(loop_scope="module")
async def test_large_payloads_lie_elsewhere_and_tell_nothing(sealed: tuple[Site, Path]) -> None:
    """External storage is respected: the history holds a reference, the folder what the codec made of the payload, and
    the caller gets every byte."""
    site, folder = sealed
    command = Command(shell=f"yes {WORD} | head -c 400000", output_limit=700_000)
    given = ToolCallInput(profile="py", caller="ann", command=command, task_queue=site.queue)
    workflow = f"sealed-{uuid.uuid4().hex[:8]}"
    result = await site.client.execute_workflow(names.TOOL_CALL, given, id=workflow, task_queue=site.queue)
    assert len(base64.b64decode(result["stdout"])) == 400_000
    stored = [path.read_bytes() for path in folder.iterdir()]
    assert sum(map(len, stored)) > 800_000, "the activity's result and the workflow's"
    assert all(map(hides, stored))
    raw = await history(site, workflow)
    assert hides(raw) and len(raw) < 50_000


@pytest.mark.asyncio(loop_scope="module")
async def test_people_read_through_a_codec_server(sealed: tuple[Site, Path]) -> None:
    """`temporal workflow show --codec-endpoint` asks the example's server, as the UI does, and prints what it says."""
    site, _ = sealed
    given = ToolCallInput(profile="py", caller="ann", command=Command(argv=("echo", WORD)), task_queue=site.queue)
    workflow = f"sealed-{uuid.uuid4().hex[:8]}"
    await site.client.execute_workflow(names.TOOL_CALL, given, id=workflow, task_queue=site.queue)
    codec = site.client.data_converter.payload_codec
    assert codec is not None
    runner = web.AppRunner(codec_server(codec, "http://ui.example"), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    show = [str(find_temporal()), "workflow", "show", "--workflow-id", workflow, "--output", "json"]
    show += ["--address", site.client.service_client.config.target_host]
    try:
        decoded = await shell(*show, "--codec-endpoint", f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()
    assert not hides(decoded) and hides(await shell(*show))


@pytest.mark.asyncio(loop_scope="module")
async def test_the_command_line_takes_the_converter(sealed: tuple[Site, Path], keys: Path) -> None:
    """`emberpool run` with EMBERPOOL_DATA_CONVERTER reads and writes as the workers do; without it it says what is
    missing."""
    site, _ = sealed
    where = {
        "EMBERPOOL_TASK_QUEUE": site.queue,
        "TEMPORAL_ADDRESS": site.client.service_client.config.target_host,
        "PYTHONPATH": str(EXAMPLES),
        "CODEC_KEYS": str(keys),
    }
    words = [*EMBERPOOL, "run", "--profile", "py", "--", "echo", WORD]
    named = {"EMBERPOOL_DATA_CONVERTER": "encryption:converter"}
    assert await shell(*words, env=where | named) == f"{WORD}\n".encode()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        await shell(*words, env=where)
    assert b"EMBERPOOL_DATA_CONVERTER" in caught.value.stderr, caught.value.stderr


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("encryption", "must be MODULE:NAME"),
        ("no_such_module:converter", "ModuleNotFoundError"),
        ("encryption:nothing", "AttributeError"),
        ("encryption:converter", "KeyError: 'CODEC_KEYS'"),
        ("encryption:ENCODING", "is a bytes, not a temporalio DataConverter"),
    ],
)
def test_a_converter_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch, name: str, problem: str) -> None:
    """The setting, and what went wrong in the user's own module."""
    monkeypatch.delenv("CODEC_KEYS", raising=False)
    with pytest.raises(InvalidInput, match=problem) as caught:
        load_data_converter(name)
    assert caught.value.field == "data_converter"
    assert load_data_converter("") is None


async def _described(site: Site, workflow_id: str) -> DescribeWorkflowExecutionResponse:
    request = DescribeWorkflowExecutionRequest(
        namespace=site.client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    return await site.client.workflow_service.describe_workflow_execution(request)


async def shell(*argv: str, env: dict[str, str] | None = None) -> bytes:
    """What a program prints. Raises CalledProcessError, with what it complained of."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, env=clean_env(env), stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv, out, err)
    return out
