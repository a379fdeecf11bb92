"""A command runs with the files, environment and limits of its room, and its result is what really happened."""

from fixtures.emberd import Lease

from emberpool.pool.model.command import Outcome


async def test_echo(lease: Lease) -> None:
    """Output, status and duration come back."""
    result = await lease.sh("echo out; echo err >&2; exit 3")
    assert (result.outcome, result.exit_code, result.stdout, result.stderr) == (Outcome.EXITED, 3, b"out\n", b"err\n")
