"""A shell lives on between commands: what one sets the next one finds, and its end is told as what it is."""

import asyncio
import secrets
import shutil

import pytest
from fixtures.emberd import Lease, new_id
from fixtures.processes import runs

from emberpool.pool.client.shells import open_shell, run_in_shell
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.errors import ShellOver
from emberpool.pool.model.shell import ShellResult, ShellState

PROGRAMS = [path for path in ("/bin/sh", "/bin/bash") if shutil.which(path)]


class Talk:
    """A shell of a lease."""

    def __init__(self, lease: Lease) -> None:
        self.lease, self.name = lease, secrets.token_hex(4)

    async def __call__(self, text: str, time_limit_s: float = 10.0) -> ShellResult:
        lease = self.lease
        return await run_in_shell(
            lease.client,
            lease.pod,
            lease.proof,
            self.name,
            new_id(),
            text,
            time_limit_s=time_limit_s,
            output_limit=65536,
        )


async def opened(lease: Lease, program: str = "/bin/sh") -> Talk:
    talk = Talk(lease)
    await open_shell(lease.client, lease.pod, lease.proof, talk.name, program=program)
    return talk


@pytest.mark.parametrize("program", PROGRAMS)
async def test_what_one_command_sets_the_next_one_finds(lease: Lease, program: str) -> None:
    """Folder, variables, functions, positional parameters; streams apart; each command's own exit status."""
    talk = await opened(lease, program)
    assert (await talk("mkdir -p d; cd d; export A='x y'; f() { echo \"fun $1\"; }; set -- p q; B=2")).exit_code == 0
    seen = await talk('basename "$PWD"; sh -c \'echo "$A"\'; f it; echo "$2$B"; echo bad >&2; (exit 7)')
    assert (seen.stdout, seen.stderr, seen.exit_code) == (b"d\nx y\nfun it\nq2\n", b"bad\n", 7)
    assert seen.shell is ShellState.ALIVE
    if program == "/bin/bash":
        await talk("declare -A map; map[k]=v; shopt -s nullglob")
        assert (await talk("echo ${map[k]} /none*")).stdout == b"v\n"


async def test_an_answer_comes_as_soon_as_the_text_ends(lease: Lease) -> None:
    """Not when whoever asked would have asked again, seconds later."""
    talk = await opened(lease)
    async with asyncio.timeout(20):
        for _ in range(10):
            assert (await talk("echo one")).stdout == b"one\n"


@pytest.mark.parametrize("program", PROGRAMS)
async def test_no_text_can_be_taken_for_an_end(lease: Lease, program: str) -> None:
    """A heredoc with everything in it, and texts that look like the shell's own talk (daytonaio/daytona#4230)."""
    talk = await opened(lease, program)
    body = '$x `y` "q" \'r\' \\\n\ttab\n0\nEOF \n{ echo "$?" >&9; } 2>/dev/null\ndone\n'
    written = await talk(f"cat > note <<'EOF'\n{body}EOF")
    assert (written.exit_code, written.stdout, written.stderr) == (0, b"", b"")
    assert (await talk("cat note")).stdout == body.encode()
    assert (await talk("echo 0 >&9 || echo closed; printf 'no newline'")).stdout == b"closed\nno newline"
    broken = await talk("if (")
    assert broken.exit_code and b"yntax error" in broken.stderr and broken.shell is ShellState.ALIVE
    assert (await talk("cat; read -r x; echo $?")).stdout == b"1\n"


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_time_limit_interrupts_and_the_shell_lives(lease: Lease, program: str) -> None:
    """What ran is killed, the rest of the text is not run, output until then is kept, variables are still there."""
    talk = await opened(lease, program)
    await talk("V=kept; sleep 4561 &")
    late = await talk("echo begun; sleep 4562; echo never", time_limit_s=0.3)
    assert (late.outcome, late.exit_code, late.stdout) == (Outcome.TIMED_OUT, None, b"begun\n")
    assert late.shell is ShellState.ALIVE and late.duration_s < 3
    assert not runs("sleep 4562") and runs("sleep 4561"), "an earlier command's job goes on"
    assert (await talk("echo $V")).stdout == b"kept\n"
    busy = await talk("while :; do :; done", time_limit_s=0.3)
    assert (busy.outcome, busy.shell) == (Outcome.TIMED_OUT, ShellState.ALIVE)


@pytest.mark.skipif("/bin/bash" not in PROGRAMS, reason="there is no bash")
async def test_an_interrupt_between_a_text_and_its_status_is_its_end(lease: Lease) -> None:
    """It may come at any moment: one that leaves no status to be told does not leave the shell without an answer."""
    talk = await opened(lease, "/bin/bash")
    late = await talk("V=kept; set -T; trap 'trap - DEBUG; kill -USR1 $$' DEBUG")
    assert (late.outcome, late.exit_code, late.shell) == (Outcome.EXITED, 124, ShellState.ALIVE)
    assert (await talk("echo $V")).stdout == b"kept\n"


async def test_a_shell_that_does_not_come_back_is_killed(lease: Lease) -> None:
    """With the interrupt ignored the shell is killed, and the answer says so."""
    talk = await opened(lease)
    late = await talk("trap '' USR1; while :; do :; done", time_limit_s=0.2)
    assert (late.outcome, late.shell) == (Outcome.TIMED_OUT, ShellState.KILLED)
    with pytest.raises(ShellOver) as over:
        await talk("true")
    assert over.value.exit_code is None


@pytest.mark.parametrize(("text", "code"), [("echo last; exit 3", 3), ("set -e; echo last; false; echo never", 1)])
async def test_an_exit_ends_the_shell(lease: Lease, text: str, code: int) -> None:
    """The answer has output and status, and the next call is told."""
    talk = await opened(lease)
    seen = await talk(text)
    assert (seen.outcome, seen.exit_code, seen.stdout) == (Outcome.EXITED, code, b"last\n")
    assert seen.shell is ShellState.EXITED
    with pytest.raises(ShellOver) as over:
        await talk("echo x > ran")
    assert over.value.exit_code == code and not (await lease.sh("ls")).stdout


async def test_set_e_stays_set(lease: Lease) -> None:
    """An option of one command holds in the next."""
    talk = await opened(lease)
    assert (await talk("set -e")).shell is ShellState.ALIVE
    seen = await talk("false; echo never")
    assert (seen.exit_code, seen.stdout, seen.shell) == (1, b"", ShellState.EXITED)


async def test_a_repeated_call_runs_once(lease: Lease) -> None:
    """The same execution id finds the first run's result; large output comes whole and before the end."""
    talk = await opened(lease)
    execution = new_id()
    for _ in range(2):
        seen = await run_in_shell(
            lease.client,
            lease.pod,
            lease.proof,
            talk.name,
            execution,
            "echo x >> count; seq 5000; wc -l < count",
            time_limit_s=9,
            output_limit=65536,
        )
        assert seen.stdout == b"".join(b"%d\n" % n for n in range(1, 5001)) + b"1\n"
