"""The output of a running command is read on from a cursor: nothing lost, nothing twice, and a gap is told."""

import asyncio
import hashlib

import pytest
from fixtures.emberd import Lease, new_id, open_lease, reset
from fixtures.faulty_proxy import FaultyProxy, faulty_proxy
from fixtures.waiting import wait_until

from emberpool.pool.client import emberd_client
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.following import follow, read_output
from emberpool.pool.client.processes import start_process
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command, Outcome
from emberpool.pool.model.errors import PodRefused, PodUnreachable
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.stream import Cursor, OutputRead

LINES = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); [ $((i % 100)) = 0 ] && sleep 0.1; done; exit 9"
EXPECTED = b"".join(b"line %d\n" % number for number in range(400))


def behind(lease: Lease, proxy: FaultyProxy) -> PodAddress:
    return lease.pod.model_copy(update={"endpoint": proxy.endpoint})


async def started(lease: Lease, **fields: object) -> ExecutionId:
    execution = new_id()
    await start_process(
        lease.client, lease.pod, lease.proof, execution, Command.model_validate(fields), time_limited=True
    )
    return execution


async def followed(lease: Lease, execution: ExecutionId, pod: PodAddress | None = None) -> tuple[bytes, OutputRead]:
    """All of stdout, and the last piece."""
    data, last = b"", OutputRead()
    async for last in follow(lease.client, pod or lease.pod, lease.proof, execution):
        assert last.stdout.offset == len(data) and not last.stdout.missed
        data += last.stdout.data
    return data, last


async def test_pieces_come_while_it_runs(lease: Lease) -> None:
    """The first piece is there long before the end; together they are the whole, with the end's real status."""
    execution = await started(lease, shell="echo one; echo err >&2; sleep 0.6; echo two; exit 5")
    reads = [seen async for seen in follow(lease.client, lease.pod, lease.proof, execution)]
    assert reads[0].running and reads[0].outcome is None and len(reads) > 1
    assert b"".join(seen.stdout.data for seen in reads) == b"one\ntwo\n"
    assert b"".join(seen.stderr.data for seen in reads) == b"err\n"
    assert (reads[-1].complete, reads[-1].outcome, reads[-1].exit_code) == (True, Outcome.EXITED, 5)


async def test_reading_again_from_a_cursor_gives_the_same(lease: Lease) -> None:
    """After the end every part of the kept output can be read, from any offset, in pieces of any size."""
    execution = await started(lease, shell="seq 3000")
    whole, _ = await followed(lease, execution)
    assert whole == b"".join(b"%d\n" % number for number in range(1, 3001))
    seen = await read_output(lease.client, lease.pod, lease.proof, execution, Cursor(stdout=1000), limit=50)
    assert (seen.stdout.data, seen.stdout.total, seen.complete) == (whole[1000:1050], len(whole), False)
    with pytest.raises(PodRefused, match="unknown_execution"):
        await read_output(lease.client, lease.pod, lease.proof, new_id(), Cursor())


async def test_the_end_of_what_is_kept_is_read_on_while_it_runs(lease: Lease) -> None:
    """Past the kept head a cursor goes on in the kept tail, at its very byte."""
    execution = await started(lease, shell="printf %0150d 7; sleep 0.3; printf abc; sleep 30", output_limit=100)
    client, where = lease.client, (lease.pod, lease.proof, execution)
    first = await read_output(client, *where, Cursor(stdout=140), wait_s=5)
    assert (first.stdout.offset, first.stdout.data) == (140, b"0000000007")
    more = await read_output(client, *where, first.cursor, wait_s=5)
    assert (more.running, more.stdout.offset, more.stdout.data, more.stdout.missed) == (True, 150, b"abc", 0)


async def test_a_slow_reader_is_told_what_it_missed(lease: Lease) -> None:
    """Beyond the output limit the middle is kept no more: its size is told, head and tail are exact."""
    execution = await started(lease, shell="seq 100000", output_limit=4000)
    whole = b"".join(b"%d\n" % number for number in range(1, 100001))

    async def over() -> bool:
        return not (await read_output(lease.client, lease.pod, lease.proof, execution, Cursor())).running

    await wait_until(over)
    reads = [seen async for seen in follow(lease.client, lease.pod, lease.proof, execution)]
    for seen in reads:
        assert seen.stdout.data == whole[seen.stdout.offset : seen.stdout.end]
    assert sum(len(seen.stdout.data) + seen.stdout.missed for seen in reads) == len(whole)
    assert sum(len(seen.stdout.data) for seen in reads) == 4000


async def test_the_stream_ends_with_the_lease(lease: Lease) -> None:
    """A fence while a read waits is told as the lease's end, never as the command's."""
    execution = await started(lease, shell="sleep 30")
    waiting = asyncio.ensure_future(
        read_output(lease.client, lease.pod, lease.proof, execution, Cursor(stdout=0), wait_s=20)
    )
    assert (await read_output(lease.client, lease.pod, lease.proof, execution, Cursor())).running
    await reset(lease)
    with pytest.raises(PodRefused, match="lease_over|stale_epoch"):
        await waiting
    await open_lease(lease.emberd, lease.client).sh("true")


async def test_cut_streams_are_read_on(lease: Lease) -> None:
    """A proxy cuts every connection in mid-answer: all lines come once, the status is the real one.

    See cloudflare/sandbox-sdk#873, opensandbox-group/OpenSandbox#1277 and kubernetes/kubernetes#73056.
    """
    async with faulty_proxy(lease.pod.endpoint.removeprefix("unix:")) as proxy:
        execution = await started(lease, shell=LINES)
        proxy.split, proxy.cut_after = 997, 1800
        task = asyncio.ensure_future(followed(lease, execution, behind(lease, proxy)))

        async def was_cut() -> bool:
            return proxy.cuts >= 3

        await wait_until(was_cut)
        proxy.cut_after = None
        data, last = await task
    assert data == EXPECTED
    assert (last.outcome, last.exit_code) == (Outcome.EXITED, 9)


async def test_split_frames_change_nothing(lease: Lease) -> None:
    """Answers that arrive in pieces of a few bytes, body and status together: codes are right every time.

    See kubernetes-client/python#2156.
    """
    async with faulty_proxy(lease.pod.endpoint.removeprefix("unix:")) as proxy:
        proxy.split = 7
        pod = behind(lease, proxy)
        commands = [Command(shell=f"exit {3 * (number % 2)}") for number in range(60)]
        results = [await lease.client.run(pod, lease.proof, new_id(), command) for command in commands]
    assert [result.exit_code for result in results] == [0, 3] * 30


async def test_a_throttled_link_delivers_all(lease: Lease) -> None:
    """Eighty thousand numbered lines over a slow link: every byte, and the status with them.

    See kubernetes/kubernetes#124571.
    """
    wanted = hashlib.sha256(b"".join(b"%d\n" % number for number in range(1, 80001))).hexdigest()
    async with faulty_proxy(lease.pod.endpoint.removeprefix("unix:")) as proxy:
        proxy.delay_s, proxy.split = 0.005, 16384
        execution = await started(lease, shell="seq 80000", output_limit=600_000)
        data, last = await followed(lease, execution, behind(lease, proxy))
    assert hashlib.sha256(data).hexdigest() == wanted
    assert last.exit_code == 0 and last.stdout.total == len(data)


async def test_an_end_that_nobody_heard_is_unknown_not_success(lease: Lease) -> None:
    """With the link gone for good, following ends with a typed error, and the command is found by its id later.

    See kubernetes/kubernetes#73056.
    """
    execution = await started(lease, shell="echo begun; sleep 0.5; exit 4")
    async with faulty_proxy(lease.pod.endpoint.removeprefix("unix:")) as proxy:
        proxy.cut_after = 10
        with pytest.raises(PodUnreachable) as error:
            await read_output(lease.client, behind(lease, proxy), lease.proof, execution, Cursor(), wait_s=5)
    assert error.value.sent
    data, last = await followed(lease, execution)
    assert (data, last.exit_code) == (b"begun\n", 4)


async def test_a_silent_link_is_noticed(lease: Lease) -> None:
    """A connection that swallows everything fails within the call's own bound (kubernetes-client/python#602)."""
    execution = await started(lease, shell="sleep 0.2; echo done")
    async with faulty_proxy(lease.pod.endpoint.removeprefix("unix:")) as proxy, EmberdClient(b"k" * 32) as client:
        proxy.black_hole = True
        with pytest.raises(PodUnreachable) as error:
            async with asyncio.timeout(10):
                await client.state(lease.pod.name, proxy.endpoint, timeout_s=0.5)
        assert error.value.sent
    assert (await followed(lease, execution))[0] == b"done\n"


@pytest.mark.parametrize("heals", [True, False])
async def test_a_run_over_a_silent_link_ends_in_time(
    lease: Lease, monkeypatch: pytest.MonkeyPatch, heals: bool
) -> None:
    """It swallows everything while the command runs: run once, whose end is heard if the link comes back; if not, the
    call ends by itself, with a typed error that says that it may have run (kubernetes-client/python#602)."""
    for name, value in (("ANSWER_S", 0.4), ("AGAIN_S", 0.3), ("REATTACH_TRIES", 3)):
        monkeypatch.setattr(emberd_client, name, value)
    command = Command(shell="echo x >> runs; sleep 0.5; wc -l < runs; exit 3", time_limit_s=3600)
    async with faulty_proxy(lease.pod.endpoint.removeprefix("unix:")) as proxy, EmberdClient(b"k" * 32) as client:
        seen = asyncio.Event()
        running = asyncio.ensure_future(
            client.run(
                behind(lease, proxy), lease.proof, new_id(), command, poll_s=0.1, on_progress=lambda _: seen.set()
            )
        )
        await asyncio.wait_for(seen.wait(), 10)
        proxy.black_hole = True
        if heals:
            swallowed = proxy.asked

            async def asked_again() -> bool:
                return proxy.asked > swallowed

            await wait_until(asked_again)
            proxy.black_hole = False
            result = await asyncio.wait_for(running, 15)
            assert (result.stdout, result.exit_code) == (b"1\n", 3)
        else:
            with pytest.raises(PodUnreachable) as error:
                await asyncio.wait_for(running, 15)
            assert error.value.sent


async def test_lost_clients_leave_no_stray(lease: Lease) -> None:
    """What a client started and left is known by id, and ends with the lease (kubernetes/kubernetes#89031)."""
    async with EmberdClient(b"k" * 32) as gone:
        execution = new_id()
        command = Command(shell="sleep 4571 & sleep 4571", time_limit_s=3600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await gone.run(lease.pod, lease.proof, execution, command)
    seen = await read_output(lease.client, lease.pod, lease.proof, execution, Cursor())
    assert seen.running
    await reset(lease)  # the attestation counts processes
    await open_lease(lease.emberd, lease.client).sh("true")
