"""Output comes back whole, or with a line that says how much is missing; reading it never holds a command up."""

import asyncio
import json

from fixtures.emberd import Lease, new_id

from emberpool.pool.client.emberd_client import Progress
from emberpool.pool.model.command import Command


async def test_one_long_line_comes_back_whole(lease: Lease) -> None:
    """A 70,000-character JSON line parses (kubernetes-client/python#2226)."""
    result = await lease.run("python3", "-c", "import json; print(json.dumps(list(range(12000))), end='')")
    assert json.loads(result.stdout) == list(range(12000))


async def test_text_is_the_same_at_every_edge(lease: Lease) -> None:
    """Multi-byte characters are not broken by the sizes of reads (kubernetes-client/python#717)."""
    result = await lease.run("python3", "-c", "print('a' + '\\u20ac' * 80000 + '\\U0001f600', end='')")
    assert result.text == "a" + "\u20ac" * 80000 + "\U0001f600"


async def test_head_and_tail_of_long_output_are_kept(lease: Lease) -> None:
    """Beyond the limit: first half, a line with the count, last half; all bytes are counted."""
    result = await lease.run("seq", "1", "200000", output_limit=1000)
    whole = b"".join(b"%d\n" % number for number in range(1, 200001))
    cut = b"\n[... %d bytes left out ...]\n" % (len(whole) - 1000)
    assert result.stdout == whole[:500] + cut + whole[-500:]
    assert result.truncated and result.stdout_bytes == len(whole)


async def test_output_at_exactly_the_limit_is_whole(lease: Lease) -> None:
    """The limit itself is not over the limit; one byte more is."""
    assert (await lease.run("printf", "%s", "x" * 999, output_limit=999)).stdout == b"x" * 999
    over = await lease.run("printf", "%s", "x" * 1000, output_limit=999)
    assert over.truncated and over.stdout.count(b"x") == 999


async def test_a_limit_of_zero_keeps_nothing(lease: Lease) -> None:
    """Only the count is left."""
    result = await lease.run("printf", "abc", output_limit=0)
    assert result.stdout == b"\n[... 3 bytes left out ...]\n" and result.stdout_bytes == 3


async def test_a_command_that_prints_too_much_goes_on(lease: Lease) -> None:
    """The rest is drained, and the command's own end is the true one (UKGovernmentBEIS/inspect_ai#792)."""
    result = await lease.sh("head -c 50000000 /dev/zero; echo done > marker; exit 5", output_limit=10000)
    assert (result.exit_code, result.stdout_bytes) == (5, 50_000_000)
    assert (await lease.read("marker")) == b"done\n"


async def test_a_background_that_nobody_reads_is_not_held_up(lease: Lease) -> None:
    """Output of survivors is drained too (modal-labs/modal-client#2416)."""
    result = await lease.sh("(sleep 0.3; head -c 10000000 /dev/zero; echo done > marker) & true")
    assert result.survivors
    assert (await lease.sh("until [ -e marker ]; do sleep 0.05; done", time_limit_s=20)).ok


async def test_a_grandchild_that_keeps_the_pipe_does_not_delay_the_end(lease: Lease) -> None:
    """The end is the foreground's (semaphoreci/agent#88, qntx/bux#163)."""
    result = await lease.sh("echo before; sleep 40 & exit 3", time_limit_s=30)
    assert (result.exit_code, result.stdout, result.survivors) == (3, b"before\n", True)
    assert result.duration_s < 10


async def test_a_thousand_short_commands_lose_nothing(lease: Lease) -> None:
    """Every short command has its status and its output (kubernetes-client/python#2156)."""

    async def one(number: int) -> bool:
        result = await lease.sh(f"echo {number}; exit {number % 7}")
        return (result.stdout, result.exit_code) == (b"%d\n" % number, number % 7)

    for start in range(0, 1000, 8):
        assert all(await asyncio.gather(*(one(start + offset) for offset in range(8))))


async def test_progress_shows_the_tail(lease: Lease) -> None:
    """While it runs, people see its last output."""
    seen: list[Progress] = []
    command = Command(shell="echo first; read x < /dev/null; until [ -e go ]; do sleep 0.02; done; echo last")

    def on_progress(progress: Progress) -> None:
        seen.append(progress)

    running = asyncio.ensure_future(
        lease.client.run(lease.pod, lease.proof, new_id(), command, poll_s=0.2, on_progress=on_progress)
    )
    await lease.sh("sleep 0.5; touch go")
    assert (await running).stdout == b"first\nlast\n"
    assert seen and seen[-1].tail == "first\n" and seen[-1].stdout_bytes == 6
