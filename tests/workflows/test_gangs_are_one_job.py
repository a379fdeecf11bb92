"""A job of several pods: all meet at the rendezvous, all end together, and the result has every rank."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.stack import Site, running_site, site_settings
from scenarios.gangs import SaveAll
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from emberpool.activities import names
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.gang_job import GangJobInput, GangJobResult
from emberpool.pool.model.profile import Isolation, Profile
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.workflows.gang_job import GangJob

EXAMPLES = Path(__file__).parents[2] / "examples"
ISOLATED = Profile(name="two", min_warm=0, max_pods=2)
PEERS = Profile(name="peers", min_warm=0, max_pods=2, isolation=Isolation.PLAIN, gang_peers=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def isolated(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """Two isolated pods at most."""
    async with running_site(stack, site_settings(stack, ISOLATED)) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def peers(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """Two plain pods at most, which reach each other."""
    async with running_site(stack, site_settings(stack, PEERS)) as site:
        yield site


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def gang(site: Site, **fields: object) -> GangJobResult:
    """Run a job from plain JSON."""
    profile = site.settings.all_profiles()[0].name
    job = {"profile": profile, "caller": "g", "size": 2, "task_queue": site.queue, **fields}
    result: GangJobResult = await site.client.execute_workflow(
        names.GANG_JOB, job, id=uuid.uuid4().hex, task_queue=site.queue, result_type=GangJobResult
    )
    return result


async def refused(site: Site, **fields: object) -> str:
    """What a job fails with."""
    with pytest.raises(WorkflowFailureError) as raised:
        await gang(site, **fields)
    assert isinstance(raised.value.cause, ApplicationError) and raised.value.cause.non_retryable
    return f"{raised.value.cause.type}: {raised.value.cause.message}"


@pytest.mark.asyncio(loop_scope="module")
async def test_one_command_per_rank_or_one_for_all(isolated: Site) -> None:
    """Each rank has its files, its environment and its command; pods and results come by rank."""
    shared = await gang(isolated, command={"shell": "echo $RANK/$WORLD_SIZE $X; cat f"}, env={"X": "x"}, files=FILES)
    assert [result.text for result in shared.results] == ["0/2 x\nf\n", "1/2 x\nf\n"]
    assert shared.ok and len(set(shared.pods)) == 2 and shared.ttfc_s is not None
    own = await gang(isolated, commands=[{"shell": "echo a"}, {"shell": "echo b"}])
    assert [result.text for result in own.results] == ["a\n", "b\n"]
    assert set(own.sources) == {"reuse"}


FILES = [{"path": "f", "text": "f\n"}]
SAVED = {"sha256": "0" * 64, "image": "base"}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("failing", ["exit 3", "kill -9 $$"])
async def test_one_rank_that_fails_ends_the_others(isolated: Site, failing: str) -> None:
    """Long before the others' own end: theirs is `cancelled`, and the result says who failed."""
    began = time.monotonic()
    result = await gang(isolated, commands=[{"shell": "sleep 50"}, {"shell": f"sleep 0.3; {failing}"}])
    assert time.monotonic() - began < 25
    assert (result.failed_rank, result.results[0].outcome) == (1, Outcome.CANCELLED), result
    assert result.results[1].exit_code == 3 or result.results[1].signal == 9
    await isolated.settled()


@pytest.mark.asyncio(loop_scope="module")
async def test_every_rank_starts_from_the_checkpoint(isolated: Site) -> None:
    """One for all, or one by rank as a group saves them; code and files come after it."""
    plan = isolated.group_plan(caller="g", size=2)
    seen = await isolated.client.execute_workflow(SaveAll.run, plan, id=uuid.uuid4().hex, task_queue=isolated.queue)
    saved = [one.model_dump(mode="json") for one in seen.saved]
    look = {"shell": "cat mine f; echo $RANK"}
    same = await gang(isolated, command=look, checkpoint=saved[1], files=FILES)
    assert [result.text for result in same.results] == ["1\nf\n0\n", "1\nf\n1\n"]
    own = await gang(isolated, command=look, checkpoints=saved[::-1], files=FILES)
    assert [result.text for result in own.results] == ["1\nf\n0\n", "0\nf\n1\n"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_job_starts_as_a_typed_workflow_too(isolated: Site) -> None:
    """The class's own start takes the model."""
    job = GangJobInput.model_validate(
        {"profile": "two", "caller": "g", "size": 1, "command": {"argv": ["true"]}, "task_queue": isolated.queue}
    )
    result = await isolated.client.execute_workflow(GangJob.run, job, id=uuid.uuid4().hex, task_queue=isolated.queue)
    assert result.ok


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "InvalidInput: input: command: give either command or commands"),
        ({"commands": [{"shell": "a"}]}, "InvalidInput: input: commands: there are 1 for 2 ranks"),
        ({"size": 0, "command": {"shell": "a"}}, "InvalidInput: size: "),
        ({"comand": {"shell": "a"}}, "InvalidInput: comand: no such field"),
        ({"command": {"shell": "a"}, "secrets": {"K": "word"}}, "InvalidInput: secrets: "),
        ({"command": {"shell": "a"}, "port": 80}, "InvalidInput: port: "),
        (
            {"command": {"shell": "a"}, "checkpoints": [SAVED]},
            "InvalidInput: input: checkpoints: there are 1 for 2 ranks",
        ),
        ({"command": {"shell": "a"}, "checkpoint": SAVED}, "InvalidInput: source: file://"),
        ({"command": {"shell": "a"}, "peers": True}, "InvalidInput: peers: pods of profile 'two' cannot reach"),
        ({"command": {"shell": "a"}, "size": 3}, "NoCapacity: "),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:30],
)
async def test_a_wrong_job_fails_once_and_holds_nothing(isolated: Site, fields: dict[str, object], told: str) -> None:
    """The field is named; a gang that does not fit is none."""
    error = await refused(isolated, **fields)
    assert error.startswith(told), error
    await isolated.settled()


@pytest.mark.asyncio(loop_scope="module")
async def test_the_example_meets_and_adds(stack: EmbeddedStack, peers: Site) -> None:
    """Two real pods reach each other at the rendezvous, as a program of its own."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "EXAMPLE_PROFILE": "peers"}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "EMBERPOOL_TASK_QUEUE": peers.queue}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / "gang_at_work.py"),
        env={**env, "EXAMPLE_PORT": str(free_port())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, errors = await process.communicate()
    # Temporal's library may still be letting go of the last answer as the interpreter ends, and aborts it then.
    aborted = process.returncode == -signal.SIGABRT and "Python runtime state: finalizing" in errors.decode()
    assert process.returncode == 0 or aborted, errors.decode()[-2000:]
    said = [line.split(": ", 1)[1] for line in out.decode().splitlines()]
    assert said == ["rank 0 of 2: the sum is 11", "rank 1 of 2: the sum is 11"]
    assert len({line.split(":")[0] for line in out.decode().splitlines()}) == 2
