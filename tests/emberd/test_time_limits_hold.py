"""A time limit ends the whole tree when it says, and what was printed until then comes back."""

import asyncio
import secrets
import time
from pathlib import Path

import pytest
from fixtures.emberd import Lease, new_id
from fixtures.processes import command_line
from fixtures.waiting import wait_until

from emberpool.pool.client import emberd_client
from emberpool.pool.model.command import Command, Outcome
from emberpool.pool.model.errors import PodRefused


async def test_output_so_far_comes_back(lease: Lease) -> None:
    """A timed-out command shows what it was doing (UKGovernmentBEIS/inspect_ai#1979)."""
    result = await lease.sh("echo A; echo B >&2; sleep 30", time_limit_s=0.6)
    assert (result.outcome, result.exit_code, result.signal) == (Outcome.TIMED_OUT, None, 9)
    assert (result.stdout, result.stderr, result.survivors) == (b"A\n", b"B\n", False)


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        ("sleep {}", 1),
        ("sleep {} & wait", 1),
        ("setsid sleep {} & wait", 1),
        ("(setsid sh -c 'sleep {} & sleep {}' &) ; sleep {}", 3),
        ("trap '' TERM INT HUP; sleep {}; sleep {}", 1),
        ("trap '' TERM INT HUP; setsid sleep {} & wait; sleep {}", 1),
        ("yes {}", 1),
    ],
)
async def test_it_returns_near_the_limit_and_kills_the_tree(lease: Lease, text: str, processes: int) -> None:
    """Also children that keep the pipe, left the session, were double-forked or ignore signals: all are seen to run,
    from outside, and none does as the result comes (python/cpython#76116, daytona#2602)."""
    mark = f"73.{secrets.randbelow(10**9):09}"
    started, most = time.monotonic(), 0
    running_on = asyncio.ensure_future(lease.sh(text.replace("{}", mark), time_limit_s=0.8, output_limit=1000))
    while not running_on.done():
        most = max(most, len(alive(mark)))
        await asyncio.sleep(0.02)
    left = alive(mark)
    assert (await running_on).outcome is Outcome.TIMED_OUT
    assert time.monotonic() - started < 5
    assert (most, left) == (processes, [])


def alive(mark: str) -> list[str]:
    """The processes of this machine, in rooms too, that a case's own number was given to, but for shells."""
    lines = [command_line(int(path.name)) for path in Path("/proc").glob("[0-9]*")]
    return [line for line in lines if line in (f"sleep {mark}", f"yes {mark}")]


async def test_a_loop_stops_writing(lease: Lease) -> None:
    """Nothing of the job goes on behind the result (UKGovernmentBEIS/inspect_ai#2779)."""
    await lease.sh("while :; do echo x >> f; sleep 0.02; done", time_limit_s=0.5)
    size = await lease.read("f")
    await lease.sh("sleep 0.3")
    assert await lease.read("f") == size


async def test_a_foreground_that_ended_is_never_timed_out(lease: Lease) -> None:
    """Outcome and status never contradict (qntx/bux#163)."""
    result = await lease.sh("sleep 30 & exit 0", time_limit_s=2)
    assert (result.outcome, result.exit_code) == (Outcome.EXITED, 0)


async def test_the_pods_ceiling_clamps_a_larger_limit(lease: Lease) -> None:
    """A limit of 1e12 s is taken as the pod's own (modelscope/evalscope#1688)."""
    assert (await lease.sh("true", time_limit_s=1e12)).ok


async def test_no_inner_timeout_cuts_a_command(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may run for longer than any one answer may take: only its own limit counts (daytonaio/daytona#4750)."""
    monkeypatch.setattr(emberd_client, "ANSWER_S", 0.5)
    command = Command(shell="sleep 1.5; echo ok", time_limit_s=30)
    result = await lease.client.run(lease.pod, lease.proof, new_id(), command, poll_s=0.05)
    assert result.stdout == b"ok\n"


async def test_kill_ends_the_tree(lease: Lease) -> None:
    """kill answers the ended result, with what was printed."""
    execution = new_id()
    command = Command(shell="echo started; touch up; setsid sleep 50 & sleep 50")
    running = asyncio.ensure_future(lease.client.run(lease.pod, lease.proof, execution, command))
    await lease.sh("until [ -e up ]; do sleep 0.02; done")
    killed = await lease.client.kill(lease.pod, lease.proof, execution)
    assert (killed.outcome, killed.stdout, killed.survivors) == (Outcome.CANCELLED, b"started\n", False)
    assert (await running).outcome is Outcome.CANCELLED


async def test_kill_after_the_end_keeps_the_end(lease: Lease) -> None:
    """A real end that came first stands; survivors are killed all the same."""
    execution = new_id()
    command = Command(shell="(while :; do echo x >> f; sleep 0.02; done) & exit 6")
    await lease.client.run(lease.pod, lease.proof, execution, command)
    killed = await lease.client.kill(lease.pod, lease.proof, execution)
    assert (killed.outcome, killed.exit_code) == (Outcome.EXITED, 6)

    async def quiet() -> bool:
        before = await lease.read("f")
        await lease.sh("sleep 0.1")
        return await lease.read("f") == before

    await wait_until(quiet, 10)


async def test_kill_of_the_unknown_is_refused(lease: Lease) -> None:
    """A typed refusal."""
    await lease.sh("true")
    with pytest.raises(PodRefused) as caught:
        await lease.client.kill(lease.pod, lease.proof, new_id())
    assert caught.value.word == "unknown_execution"


async def test_a_job_that_kills_all_in_its_reach_ends_by_signal(room_lease: Lease) -> None:
    """Even a killed keeper gives an end at once, nothing of the tree stays, and the room serves on."""
    result = await room_lease.sh("setsid sleep 55 & kill -9 -1; sleep 30", time_limit_s=20)
    assert result.outcome in (Outcome.SIGNALED, Outcome.EXITED)
    assert result.duration_s < 10

    async def none_left() -> bool:
        return (await room_lease.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).text.count("sleep 55") == 0

    await wait_until(none_left, 10)
