"""What a command prints past its output limit is kept whole in the pod, and fetched while the lease lasts."""

import os

import pytest
from fixtures.emberd import Lease, Starter, new_id, open_lease, reset
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.errors import PodRefused, SandboxFileError
from emberpool.pool.model.ids import ExecutionId


async def output(lease: Lease, result: CommandResult, stream: str = "stdout", offset: int = 0) -> bytes:
    """All of it."""
    execution = ExecutionId(result.execution_id)
    opening = lease.client.transfers.output(lease.pod, lease.proof, execution, stream, offset)
    async with opening as incoming:
        return b"".join([piece async for piece in incoming.pieces])


async def test_long_output_is_whole_in_the_pod(lease: Lease) -> None:
    """Both streams, from any offset, while the result keeps head and tail."""
    result = await lease.sh("seq 1 200000; seq 1 100000 >&2; exit 3", output_limit=1000)
    whole = b"".join(b"%d\n" % number for number in range(1, 200001))
    assert (result.exit_code, result.stdout_spilled, result.stdout_bytes) == (3, len(whole), len(whole))
    assert result.stdout.startswith(whole[:500]) and result.stdout.endswith(whole[-500:])
    assert await output(lease, result) == whole
    assert await output(lease, result, offset=1_000_000) == whole[1_000_000:]
    assert await output(lease, result, "stderr") == b"".join(b"%d\n" % number for number in range(1, 100001))


async def test_short_output_is_fetched_too(lease: Lease) -> None:
    """What was not over the limit is in the result, and can be had in the same way."""
    result = await lease.sh("echo hello")
    assert (result.stdout_spilled, result.truncated) == (0, False)
    assert await output(lease, result) == b"hello\n" and await output(lease, result, "stderr") == b""


async def test_past_the_limit_of_files_it_is_dropped(lease: Lease) -> None:
    """A spill has at most limits.file_mb; the command goes on to its own end, and all its bytes are counted."""
    result = await lease.sh("head -c 40000000 /dev/zero; exit 5", output_limit=1000)
    assert (result.exit_code, result.stdout_bytes, result.stdout_spilled) == (5, 40_000_000, 32 * 1024 * 1024)
    assert result.truncated and len(await output(lease, result)) == 32 * 1024 * 1024


async def test_the_oldest_make_place(lease: Lease) -> None:
    """All spills of a lease together are bounded too: the oldest go first, and say so."""
    command = Command(shell="head -c 30000000 /dev/zero", output_limit=0)
    results = [await lease.client.run(lease.pod, lease.proof, new_id(), command) for _ in range(6)]
    with pytest.raises(SandboxFileError) as caught:
        await output(lease, results[0])
    assert caught.value.reason == "not_found"
    assert len(await output(lease, results[-1])) == results[-1].stdout_spilled == 30_000_000


async def test_jobs_and_later_leases_find_no_spill(emberds: Starter, emberd_client: EmberdClient) -> None:
    """A spill has no name in any folder, is gone with its lease, and its disk with it."""
    emberd = emberds.start("namespaces")
    lease = open_lease(emberd, emberd_client)
    result = await lease.sh("echo secret-of-this-job; seq 1 100000", output_limit=10)
    assert result.stdout_spilled
    names = [name for _, _, files in os.walk(emberd.folder) for name in files]
    assert not any("tmp" in name for name in names), names
    await reset(lease)
    later = open_lease(emberd, emberd_client)
    assert (await later.sh("true")).ok
    with pytest.raises(PodRefused) as caught:
        await output(later, result)
    assert caught.value.word == "unknown_execution"

    async def freed() -> bool:
        inside = [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_emberd(pid, str(emberd.folder))]
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for pid in inside for fd in os.listdir(f"/proc/{pid}/fd")]
        return not any("scratch" in link and "deleted" in link for link in links)

    await wait_until(freed)


def _is_emberd(pid: str, folder: str) -> bool:
    try:
        with open(f"/proc/{pid}/mountinfo") as lines:
            return folder in lines.read()
    except OSError:
        return False


async def test_stdin_may_be_a_file_of_the_room(lease: Lease) -> None:
    """Read by the job as itself; what is no regular file is refused with a line, and blocks nothing."""
    await lease.write("in", b"from a file")
    assert (await lease.run("cat", stdin_path="in")).stdout == b"from a file"
    await lease.sh("mkfifo p")
    for path in ("p", "/dev/zero", "gone"):
        result = await lease.run("cat", stdin_path=path, time_limit_s=5)
        assert result.exit_code in (126, 127) and path in result.error_text
