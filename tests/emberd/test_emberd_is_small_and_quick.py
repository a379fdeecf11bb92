"""emberd takes little of its pod, and the start of a command waits for nothing that could have been done before."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from fixtures.emberd import EmberdProcess, Starter, new_id, open_lease
from fixtures.processes import children, command_line, descendants, state, wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.command import Command, Outcome

needs_proc = pytest.mark.skipif(os.geteuid() != 0, reason="another user's memory is read by root only")


def memory_mb(pid: int, field: str) -> float:
    """A line of /proc/PID/smaps_rollup, in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


@needs_proc
async def test_it_stays_under_30_mib(emberds: Starter, emberd_client: EmberdClient) -> None:
    """Resident, after hundreds of commands and their output; and so does all of it together, by its fair share."""
    pod = emberds.start("namespaces")
    lease = open_lease(pod, emberd_client)
    for _ in range(150):
        assert (await lease.sh("head -c 20000 /dev/zero")).ok
    processes = [pid for pid in descendants(pod.process.pid) if "main.py" in command_line(pid)]
    emberd = min(processes)
    assert memory_mb(emberd, "Rss") < 30
    assert sum(memory_mb(pid, "Pss") for pid in processes) < 60
    pod.stop()


def shims(pod: EmberdProcess) -> list[int]:
    """Host PIDs of shims that stand ready: below emberd, the zygote and a room's first process."""
    (emberd,) = children(pod.process.pid)
    return [shim for zygote in children(emberd) for init in children(zygote) for shim in children(init)]


@pytest.fixture
def pod(emberds: Starter) -> EmberdProcess:
    """A pod with rooms of the test's own."""
    return emberds.start("namespaces")


@needs_proc
async def test_a_shim_stands_ready_for_each_command(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """It runs the next command, and another one takes its place; the spare room has none."""
    lease = open_lease(pod, emberd_client)
    wait_until(lambda: len(shims(pod)) == 1)
    (ready,) = shims(pod)
    assert (await lease.sh("sleep 60 >/dev/null 2>&1 &")).survivors
    assert [command_line(pid) for pid in children(ready)] == ["sleep 60"]
    wait_until(lambda: len(shims(pod)) == 2 and ready in shims(pod))
    pod.stop()


@needs_proc
async def test_a_command_that_is_waited_for_takes_no_thread(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """The connection's own looks after it; only one that goes on after its answer has another."""
    lease = open_lease(pod, emberd_client)
    assert (await lease.sh("true")).ok
    (emberd,) = children(pod.process.pid)

    def threads() -> int:
        return len(os.listdir(f"/proc/{emberd}/task"))

    before, execution = threads(), new_id()
    command = lease.client.run(lease.pod, lease.proof, execution, Command(shell="sleep 60"), poll_s=60)
    waiting = asyncio.create_task(command)
    await asyncio.to_thread(wait_until, lambda: any(command_line(pid) == "sleep 60" for pid in descendants(emberd)))
    assert threads() == before
    await lease.client.kill(lease.pod, lease.proof, execution)
    assert (await waiting).outcome is Outcome.CANCELLED
    before = threads()  # with that of a second connection
    assert (await lease.sh("sleep 60 >/dev/null 2>&1 &")).survivors
    wait_until(lambda: threads() == before + 1)
    pod.stop()


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_ready_shim_that_a_job_hit_harms_nobody(
    pod: EmberdProcess, emberd_client: EmberdClient, number: signal.Signals
) -> None:
    """Killed, it is replaced; stopped, it goes on, or is given up after 15 s if it was not quite ready."""
    lease = open_lease(pod, emberd_client)
    wait_until(lambda: len(shims(pod)) == 1)
    (ready,) = shims(pod)
    os.kill(ready, number)
    wait_until(lambda: state(ready) in "ZTX")
    result = await lease.sh("echo fine", time_limit_s=30)
    assert result.stdout == b"fine\n"
    pod.stop()
