"""A job cannot take more memory, processes or files than its pod has, and emberd answers all the while."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from fixtures.emberd import Lease, new_id, reset
from fixtures.processes import running
from fixtures.waiting import wait_until

from emberpool.pool.client.processes import await_end, start_process
from emberpool.pool.emberd import channel
from emberpool.pool.emberd.exec_request import Request
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.shims import Shim
from emberpool.pool.model.command import Command, Outcome

EAT = "import time\nblocks = []\nwhile True:\n    blocks.append(bytearray(8 << 20)); time.sleep(0.005)"


async def test_too_much_memory_ends_as_oom_killed(lease: Lease) -> None:
    """Told apart from a time-out and from any other signal; output until then is kept."""
    result = await lease.sh(f'echo before; python3 -c "{EAT}"', time_limit_s=30)
    assert (result.outcome, result.exit_code, result.signal) == (Outcome.OOM_KILLED, None, 9)
    assert result.stdout == b"before\n"
    assert (await lease.sh("echo after")).stdout == b"after\n"


async def test_the_largest_execution_is_the_one_that_ends(lease: Lease) -> None:
    """A child over the limit ends its own command, whole, as oom_killed; one beside it that prints goes on to its real
    end, and the pod is attested before anybody else gets it (kubernetes/kubernetes#117070)."""
    small = Command(shell="echo begun; until [ -e go ]; do sleep 0.05; done; echo fine")
    running = asyncio.ensure_future(lease.client.run(lease.pod, lease.proof, new_id(), small))
    eaten = await lease.run("sh", "-c", 'python3 -c "$1" & wait; echo never', "sh", EAT, time_limit_s=30)
    assert (eaten.outcome, eaten.exit_code, eaten.stdout) == (Outcome.OOM_KILLED, None, b"")
    await lease.write("go", b"")
    beside = await running
    assert (beside.ok, beside.stdout) == (True, b"begun\nfine\n")
    await reset(lease)


async def test_shared_mappings_count_too(lease: Lease) -> None:
    """Memory that is shared between a job's processes is the pod's memory all the same."""
    text = "import mmap, time; m = mmap.mmap(-1, 300 << 20); m.write(b'x' * (300 << 20)); time.sleep(20)"
    assert (await lease.run("python3", "-c", text, time_limit_s=15)).outcome is Outcome.OOM_KILLED


async def test_a_fork_bomb_harms_nobody(room_lease: Lease) -> None:
    """emberd answers, the bomb ends by its time limit, and the pod is reset and used again (NVIDIA/NemoClaw#809)."""
    bomb = asyncio.ensure_future(room_lease.sh("b() { b | b & }; b; b; sleep 30", time_limit_s=1.5, output_limit=100))
    state = await room_lease.client.state(room_lease.pod.name, room_lease.pod.endpoint)
    assert state.pod == room_lease.pod.name
    result = await bomb
    assert result.duration_s < 15
    await reset(room_lease)


async def test_threads_are_limited(lease: Lease) -> None:
    """The job fails with EAGAIN at its limit."""
    text = (
        "import threading, time\n"
        "n = 0\n"
        "try:\n"
        "    while n < 5000: threading.Thread(target=time.sleep, args=(20,), daemon=True).start(); n += 1\n"
        "except RuntimeError: pass\n"
        "print(n, flush=True); import os; os._exit(0)"
    )
    result = await lease.run("python3", "-c", text, time_limit_s=30)
    most = 130 if lease.emberd.mode == "namespaces" else 4000
    assert 10 < int(result.text) < most


async def test_open_files_and_file_size_are_limited(lease: Lease) -> None:
    """The profile's limits are the job's, and it dumps no core."""
    assert (await lease.sh("ulimit -n; ulimit -c")).text.split() == ["256", "0"]
    result = await lease.sh("head -c 40M /dev/zero > f; stat -c %s f")
    assert int(result.text.split()[-1]) <= 32 * 1024 * 1024


async def test_endless_output_costs_no_memory(lease: Lease) -> None:
    """emberd keeps the head and the tail of `yes` and no more (modelscope/evalscope#1688)."""
    result = await lease.sh("yes ''", time_limit_s=1, output_limit=1000)
    assert result.outcome is Outcome.TIMED_OUT and len(result.stdout) < 1100
    assert result.stdout_bytes > 1_000_000


async def test_a_survivor_that_eats_memory_is_ended(lease: Lease) -> None:
    """Background processes are watched as long as they live, also if nothing else is asked of the pod."""
    hold = "import time; held = b'x' * (400 << 20); time.sleep(4361)"
    result = await lease.run("sh", "-c", 'python3 -c "$1" >/dev/null 2>&1 &', "sh", hold)
    assert result.survivors

    async def ended() -> bool:
        return not any(hold in line for line in running())  # of its shell too, which becomes it

    await wait_until(ended, 20)


async def test_a_survivor_of_a_background_process_is_ended_too(lease: Lease) -> None:
    """Though its foreground ended at once, and nobody waited for that."""
    hold = "import time; held = b'x' * (400 << 20); time.sleep(4363)"
    command = Command(argv=("sh", "-c", 'python3 -c "$1" >/dev/null 2>&1 &', "sh", hold))
    at = (lease.client, lease.pod, lease.proof, new_id())
    await start_process(*at, command)
    end = await await_end(*at, 10)
    assert end is not None and end.survivors

    async def ended() -> bool:
        return not any(hold in line for line in running())

    await wait_until(ended, 20)


def test_survivors_are_watched_before_their_commands_answer_is_sent() -> None:
    """A caller who reads it slowly, or never, holds up nothing."""
    watched: list[bool] = []
    here, there = socket.socketpair()
    channel.send_end(there, 0, True)
    room: Any = SimpleNamespace(shims=SimpleNamespace(take=lambda: Shim(here, None), make_ready=lambda: None))
    request = Request("one", ["true"], {}, "/", b"", 10.0, 100, "true")
    one = Execution(request, room, watch=lambda: watched.append(True))
    there.close()
    try:
        result = one.wait(5)
        assert result is not None and result["survivors"] and watched == [True]
    finally:
        one.settle()
