"""A job that has used up all threads that there are gets neither more time nor more place than others."""

import os
import subprocess
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager

import pytest
from fixtures.emberd import PYTHON, EmberdProcess, Lease, Starter, new_id, open_lease, reset
from fixtures.processes import runs
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.processes import await_end, start_process
from emberpool.pool.model.command import Command, Outcome


@pytest.fixture(scope="module")
def pod(emberds: Starter) -> EmberdProcess:
    """One whose emberd is the process that was started."""
    return emberds.start("plain")


@pytest.fixture
async def opened(pod: EmberdProcess, emberd_client: EmberdClient) -> AsyncIterator[Lease]:
    """A lease whose connection has its thread, and whose next command has its shim."""
    lease = open_lease(pod, emberd_client)
    assert (await lease.sh("true")).ok
    yield lease
    await reset(lease)


@contextmanager
def no_more_threads(pod: EmberdProcess) -> Generator[None]:
    """Its emberd has as many processes and threads as it may have; its jobs may have more."""
    before = _limit(pod, "1")
    try:
        yield
    finally:
        _limit(pod, before)


def _limit(pod: EmberdProcess, most: str) -> str:
    """Set the limit, as the user whose process it is; the one before."""
    text = "import resource as r, sys; one = int(sys.argv[1]), r.RLIMIT_NPROC; soft, hard = r.prlimit(*one)\n"
    text += "r.prlimit(*one, (int(sys.argv[2]), hard)); print(soft)"
    uid = os.stat(pod.folder / "run" / "s").st_uid if os.geteuid() == 0 else None
    groups = None if uid is None else ()
    command = [PYTHON, "-c", text, str(pod.process.pid), most]
    return subprocess.run(
        command, user=uid, group=uid, extra_groups=groups, check=True, capture_output=True, text=True
    ).stdout.strip()


async def test_a_time_limit_holds_all_the_same(opened: Lease) -> None:
    """Though nobody waits; and whoever waits next hears how it ended."""
    execution, command = new_id(), Command(shell="echo said; sleep 4371", time_limit_s=0.5)
    at = (opened.client, opened.pod, opened.proof, execution)

    async def begun() -> bool:
        return runs("sleep 4371")

    async def ended() -> bool:
        return not runs("sleep 4371")

    with no_more_threads(opened.emberd):
        assert await start_process(*at, command, time_limited=True)
        await wait_until(begun, 10)
        await wait_until(ended, 10)
        end = await await_end(*at, 10)
    assert end is not None
    assert (end.outcome, end.stdout, end.survivors) == (Outcome.TIMED_OUT, b"said\n", False)


async def test_a_command_that_ends_in_time_is_told(opened: Lease) -> None:
    """Whoever waits for it looks after it, one after the other."""
    with no_more_threads(opened.emberd):
        at = (opened.client, opened.pod, opened.proof, new_id())
        assert await start_process(*at, Command(shell="sleep 0.3; exit 3"), time_limited=True)
        assert await await_end(*at, 0.05, poll_s=0.01) is None
        end = await await_end(*at, 10)
    assert end is not None and end.exit_code == 3


async def test_what_survivors_print_is_read_as_soon_as_there_is_one(opened: Lease) -> None:
    """They would hang on a full pipe for ever."""
    text = "(until [ -e go ]; do sleep 0.02; done; head -c 3000000 /dev/zero; touch done) &"
    with no_more_threads(opened.emberd):
        assert (await opened.sh(text)).survivors
        await opened.write("go", b"")

    async def done() -> bool:
        return b"done" in (await opened.sh("ls")).stdout

    await wait_until(done, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="the open files of what cannot be dumped are seen by root only")
async def test_the_lease_may_end_meanwhile(opened: Lease) -> None:
    """What nobody looked after is gone with it, and no file of it stays open in emberd."""

    def files() -> int:
        return len(os.listdir(f"/proc/{opened.emberd.process.pid}/fd"))

    before = files()
    with no_more_threads(opened.emberd):
        for _ in range(3):
            assert (await opened.sh("sleep 4372 &")).survivors
        assert files() > before
        await reset(opened)
        assert not runs("sleep 4372")
        assert files() <= before
