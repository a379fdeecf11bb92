"""Background processes: nobody waits for them, nothing blocks them, and they are found again by id."""

import asyncio
import hashlib
import signal

import pytest
from fixtures.emberd import Lease, new_id
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.following import follow, read_output
from emberpool.pool.client.processes import list_processes, send_signal, start_process, write_stdin
from emberpool.pool.model.command import Command, Outcome
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.process import InputPiece, InputState
from emberpool.pool.model.stream import Cursor


async def begun(lease: Lease, text: str, stdin_open: bool = False, **fields: object) -> ExecutionId:
    execution = new_id()
    command = Command.model_validate({"shell": text, **fields})
    await start_process(lease.client, lease.pod, lease.proof, execution, command, stdin_open=stdin_open)
    return execution


async def write(lease: Lease, execution: ExecutionId, data: bytes, offset: int, end: bool = False) -> InputState:
    piece = InputPiece(data=data, offset=offset, end=end)
    return await write_stdin(lease.client, lease.pod, lease.proof, execution, piece, wait_s=0.2)


async def output(lease: Lease, execution: ExecutionId) -> bytes:
    """All of stdout, to the end."""
    return b"".join([seen.stdout.data async for seen in follow(lease.client, lease.pod, lease.proof, execution)])


async def test_output_that_nobody_reads_blocks_nothing(lease: Lease) -> None:
    """Megabytes into pipes without a reader, and the process goes on to its next step (modal-labs/modal-client#2416).

    The window that is kept stays within its limit.
    """
    execution = await begun(lease, "yes | head -c 10000000; touch marker; sleep 30", output_limit=10_000)

    async def marked() -> bool:
        return (await lease.sh("ls")).stdout == b"marker\n"

    await wait_until(marked)
    seen = await read_output(lease.client, lease.pod, lease.proof, execution, Cursor(stdout=5000))
    assert seen.running and seen.stdout.total == 10_000_000
    assert seen.stdout.missed > 9_000_000 and seen.stdout.end == 10_000_000


async def test_a_process_is_found_again_after_its_client_was_gone(lease: Lease) -> None:
    """Another client goes on from the cursor, without a gap and without a repeat, and gets the exit code.

    See e2b-dev/E2B#1074.
    """
    execution = new_id()
    command = Command(shell="for i in $(seq 60); do echo $i; sleep 0.01; done; exit 6")
    async with EmberdClient(b"k" * 32) as first:
        await start_process(first, lease.pod, lease.proof, execution, command)
        before = await read_output(first, lease.pod, lease.proof, execution, Cursor(), wait_s=5)
    rest = [seen async for seen in follow(lease.client, lease.pod, lease.proof, execution, before.cursor)]
    data = before.stdout.data + b"".join(seen.stdout.data for seen in rest)
    assert data == b"".join(b"%d\n" % number for number in range(1, 61))
    assert rest[-1].exit_code == 6
    assert [line.running for line in await list_processes(lease.client, lease.pod, lease.proof)] == [False]


async def test_no_time_limit_ends_it(lease: Lease) -> None:
    """A command's time limit is not for background processes: only their own end and the lease's."""
    execution = await begun(lease, "sleep 0.6; echo end", time_limit_s=0.1)
    assert await output(lease, execution) == b"end\n"


async def test_signals_reach_the_whole_group(lease: Lease) -> None:
    """A trap is run; children of the group get it too; after the end there is nobody to signal."""
    # A child of dash that is signalled before it became `sleep` may lose the signal.
    sleeping = "until grep -q sleep /proc/$!/comm; do :; done"
    execution = await begun(lease, f"trap 'echo caught; exit 3' TERM; sleep 4581 & {sleeping}; echo up; wait")
    await anext(follow(lease.client, lease.pod, lease.proof, execution))
    assert await send_signal(lease.client, lease.pod, lease.proof, execution, signal.SIGTERM)
    last = [seen async for seen in follow(lease.client, lease.pod, lease.proof, execution)][-1]
    assert (last.outcome, last.exit_code) == (Outcome.EXITED, 3)

    async def child_ended() -> bool:  # it may do so a moment after its parent
        return (await lease.sh("! grep -q 'sleep.458[1]' /proc/[0-9]*/cmdline")).ok

    await wait_until(child_ended)
    assert not await send_signal(lease.client, lease.pod, lease.proof, execution, signal.SIGTERM)


async def test_stdin_is_written_while_it_runs(lease: Lease) -> None:
    """Answers come between the pieces; a piece that is sent twice is written once; the end is end-of-file.

    See kubernetes-client/python#2371.
    """
    execution = await begun(lease, "while read -r x; do echo got $x; done; wc -c < /dev/stdin; echo end", True)
    assert (await write(lease, execution, b"a\nb", 0)).accepted == 3
    first = await anext(follow(lease.client, lease.pod, lease.proof, execution))
    assert first.stdout.data == b"got a\n" and first.running
    await write(lease, execution, b"a\nb", 0)
    assert (await write(lease, execution, b"b\n", 2)).accepted == 4
    state = await write(lease, execution, b"", 4, end=True)
    assert (state.accepted, state.open) == (4, False)
    assert await output(lease, execution) == b"got a\ngot b\n0\nend\n"


async def test_a_command_that_does_not_read_bounds_what_is_taken(lease: Lease) -> None:
    """What waits for it is at most a mebibyte; the sender is told how far it got and goes on from there."""
    execution = await begun(lease, "until [ -e go ]; do sleep 0.02; done; sha256sum | cut -c1-64; wc -c", True)
    data = bytes(range(256)) * 12_000
    sent = 0
    while sent < len(data):
        before = sent
        sent = (await write(lease, execution, data[sent : sent + 500_000], sent)).accepted
        if sent == before:
            break
    assert 1024 * 1024 <= sent < 1024 * 1024 + 200_000
    await lease.write("go", b"")
    while sent < len(data):
        sent = (await write(lease, execution, data[sent : sent + 500_000], sent)).accepted
    await write(lease, execution, b"", sent, end=True)
    assert (await output(lease, execution)).split()[0].decode() == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("tty", [False, True])
async def test_a_job_left_behind_does_not_hold_the_end_back(lease: Lease, tty: bool) -> None:
    """The foreground's exit is the end, whoever else has pipe or terminal open (semaphoreci/agent#88)."""
    async with asyncio.timeout(5):
        result = await lease.sh("sleep 999 & echo out; exit 3", tty=tty)
    assert (result.exit_code, result.stdout.strip(), result.survivors) == (3, b"out", True)
