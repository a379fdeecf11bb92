"""Calls side by side on one client, values that look like shell text, and limits that limit."""

import asyncio
import time

import pytest
from fixtures.emberd import Lease

from emberpool.pool.model.command import Outcome
from emberpool.pool.model.errors import InvalidInput


async def test_one_client_runs_and_reads_side_by_side(lease: Lease) -> None:
    """Each of many concurrent calls of both kinds gets its own answer (kubernetes-client/python#928)."""
    await lease.write("note", b"x" * 5000)

    async def one(number: int) -> bool:
        if number % 2:
            return await lease.read("note") == b"x" * 5000
        return (await lease.run("echo", str(number))).stdout == b"%d\n" % number

    for start in range(0, 120, 30):
        assert all(await asyncio.gather(*map(one, range(start, start + 30))))


async def test_environment_values_arrive_as_they_are(lease: Lease) -> None:
    """Blanks, dollar signs, quotes, line ends, nothing at all, and 100 KB (opensandbox-group/OpenSandbox#1893)."""
    env = {"A": " x ", "B": "$HOME", "C": "a\nb", "D": "", "E": "it's", "F": "y" * 100_000, "G": "é\\n"}
    script = "import os; print(repr([os.environ[n] for n in 'ABCDEFG']))"
    result = await lease.run("python3", "-c", script, env=env)
    assert result.stdout.decode() == repr(list(env.values())) + "\n"
    huge = await lease.run("true", env={"H": "z" * 1_000_000})
    assert huge.exit_code == 126 and b"rgument list too long" in huge.stderr
    with pytest.raises(InvalidInput):
        await lease.client.bind(lease.pod, lease.proof, {"bad=name": "v"})


async def test_a_time_limit_is_kept_to(lease: Lease) -> None:
    """The end comes at the limit and not when the command would have ended (daytonaio/daytona#2602)."""
    began = time.monotonic()
    result = await lease.sh("sleep 5; echo late", time_limit_s=0.5)
    assert result.outcome is Outcome.TIMED_OUT and 0.5 <= result.duration_s < 2.5
    assert time.monotonic() - began < 4 and not result.survivors
