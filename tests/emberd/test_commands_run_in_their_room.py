"""A command gets exactly the arguments, environment, input and folder asked for, and its true end comes back."""

import json
import random
import signal
import time

import pytest
from fixtures.emberd import Lease

from emberpool.pool.model.command import Outcome
from emberpool.pool.model.errors import InvalidInput


async def test_output_and_status_come_back(lease: Lease) -> None:
    """stdout and stderr apart, as bytes, with the exit status (kubernetes-client/python-base#88)."""
    result = await lease.sh(r"printf '\377\376ok'; echo err >&2; exit 4")
    assert (result.outcome, result.exit_code, result.signal) == (Outcome.EXITED, 4, None)
    assert (result.stdout, result.stderr) == (b"\xff\xfeok", b"err\n")
    assert not result.truncated and not result.survivors


async def test_nul_bytes_in_output_survive(lease: Lease) -> None:
    """Output may hold any byte (Coursemology/coursemology2#3372)."""
    result = await lease.sh(r"printf 'a\0b\033[0m'; exit 2")
    assert (result.stdout, result.exit_code) == (b"a\0b\x1b[0m", 2)


async def test_a_signal_is_told_apart_from_a_status(lease: Lease) -> None:
    """A command that a signal ended has no exit code."""
    result = await lease.sh("kill -SEGV $$")
    assert (result.outcome, result.exit_code, result.signal) == (Outcome.SIGNALED, None, signal.SIGSEGV)


@pytest.mark.parametrize("name", ["TERM", "INT", "QUIT", "HUP", "PIPE", "XFSZ"])
async def test_no_signal_is_ignored_from_the_start(lease: Lease, name: str) -> None:
    """A command gets every signal's default action, so that `kill` and `timeout` work inside a sandbox."""
    result = await lease.sh(f"kill -{name} $$; echo survived")
    assert (result.outcome, result.signal) == (Outcome.SIGNALED, signal.Signals[f"SIG{name}"]), result.text


@pytest.mark.parametrize("text", ["cat", "grep x", "python3 -c 'input()'", "sort"])
async def test_stdin_is_empty_unless_given(lease: Lease, text: str) -> None:
    """Filters read end-of-file at once (SemiAnalysisAI/InferenceX#2303)."""
    started = time.monotonic()
    await lease.sh(text, time_limit_s=20)
    assert time.monotonic() - started < 10


async def test_stdin_is_given_whole_and_closed(lease: Lease) -> None:
    """Any bytes arrive, then end-of-file (kubernetes-client/python#2371, inspect_k8s_sandbox#244)."""
    data = bytes(range(256)) * 4000
    result = await lease.sh("wc -c", stdin=data)
    assert result.stdout.split() == [str(len(data)).encode()]
    assert (await lease.run("cat", stdin=data[:200_000])).stdout == data[:200_000]


async def test_a_command_that_reads_no_stdin_ends_normally(lease: Lease) -> None:
    """Unread input is no error."""
    assert (await lease.run("true", stdin=b"x" * 500_000)).ok


async def test_environment_is_data(lease: Lease) -> None:
    """Values arrive byte for byte, never through a shell (anthropics/claude-code#85447, OpenSandbox#1893)."""
    env = {
        "A": " x ",
        "B": "$HOME",
        "C": "a\nb",
        "D": "",
        "E": "it's",
        "K": '{\n "a": [1]\n}',
        "BIG": "z" * 100_000,
        "É": "ü",
    }
    result = await lease.run("env", "-0", env=env)
    got = dict(item.split("=", 1) for item in result.text.split("\0") if item)
    assert {name: got.get(name) for name in env} == env
    assert got["EMBER_BASE"] == "base" and got["HOME"] and got["TMPDIR"]


async def test_only_the_rooms_environment_is_inherited(lease: Lease) -> None:
    """Nothing of emberd's own environment reaches a job (openai/openai-agents-python#4617)."""
    names = {line.split("=")[0] for line in (await lease.run("env")).text.splitlines()}
    assert names <= {"PATH", "LANG", "HOME", "TMPDIR", "EMBER_BASE", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}


async def test_bound_environment_holds_for_later_commands(lease: Lease) -> None:
    """bind sets environment for the rest of the lease; a command's own goes over it; the last bind wins."""
    await lease.client.bind(lease.pod, lease.proof, {"A": "1", "B": "1"})
    await lease.client.bind(lease.pod, lease.proof, {"B": "2"})
    result = await lease.sh("echo $A$B$C", env={"C": "3"})
    assert result.stdout == b"123\n"


async def test_arguments_are_not_split_or_expanded(lease: Lease) -> None:
    """argv goes to execve as it is (marcusquinn/aidevops#3123)."""
    argv = ["a b", "$(id)", "*", "", "it's", "x\ny", "`id`", "é"]
    result = await lease.run("printf", "%s\\0", *argv)
    assert result.stdout.decode().split("\0")[:-1] == argv


async def test_no_text_is_ever_evaluated(lease: Lease) -> None:
    """Random texts of what shells act on, as arguments, environment, folders and names of files: all arrive as they are
    (marcusquinn/aidevops#3123)."""
    chance = random.Random(3123)
    texts = ["".join(chance.choices("'\"`$(){}[]<>;|&*?!#~\\ \n\t%=-aé", k=chance.randint(1, 40))) for _ in range(60)]
    env = {f"V{number}": text for number, text in enumerate(texts)}
    script = "import json, os, sys; print(json.dumps([sys.argv[1:], [os.environ[f'V{n}'] for n in range(60)]]))"
    result = await lease.run("python3", "-c", script, *texts, env=env)
    assert json.loads(result.text) == [texts, texts], result.error_text
    for text in texts[:12]:
        await lease.write(f"d{text}/{text}", text.encode())
        assert await lease.read(f"d{text}/{text}") == text.encode()
        result = await lease.run("python3", "-c", "import json, os; print(json.dumps(os.getcwd()))", cwd=f"d{text}")
        assert json.loads(result.text).endswith(f"/d{text}")
    assert len((await lease.run("python3", "-c", "import os; print(len(os.listdir()))")).text) == 3


async def test_shell_text_is_passed_whole_to_one_shell(lease: Lease) -> None:
    """Background and chained steps stay as written (opensandbox-group/OpenSandbox#127)."""
    result = await lease.sh("""touch a & touch b && touch c; echo "d e" > 'f g'; wait; ls; cat 'f g'""")
    assert result.stdout.split(b"\n")[:-1] == [b"a", b"b", b"c", b"f g", b"d e"]


async def test_a_quoted_heredoc_keeps_its_text(lease: Lease) -> None:
    """There is no end marker that text could collide with (daytonaio/daytona#4230)."""
    body = "$x `id` \" ' \\\n\tEND \\\nEMBER\n"
    result = await lease.sh(f"cat > f <<'EOF-1'\n{body}EOF-1\ncat f")
    assert (result.text, result.exit_code) == (body, 0)


async def test_cwd_is_work_and_may_be_given(lease: Lease) -> None:
    """Relative folders start at the work folder."""
    work = (await lease.run("pwd")).text.strip()
    await lease.sh("mkdir -p deep/er")
    assert (await lease.run("pwd", cwd="deep/er")).text.strip() == f"{work}/deep/er"
    assert (await lease.run("pwd", cwd="/usr")).text.strip() == "/usr"


@pytest.mark.parametrize(
    ("argv", "cwd", "code"),
    [
        (["no-such-program"], None, 127),
        (["/usr/no/such"], None, 127),
        (["/usr"], None, 126),
        (["true"], "no/such/folder", 127),
    ],
)
async def test_what_cannot_start_ends_as_a_shell_would_have_it(
    lease: Lease, argv: list[str], cwd: str | None, code: int
) -> None:
    """127 for what is not there, 126 for what cannot be run, and a line on stderr that says which."""
    result = await lease.run(*argv, cwd=cwd)
    assert (result.outcome, result.exit_code) == (Outcome.EXITED, code)
    assert result.error_text.startswith("emberd: ")


async def test_files_and_environment_too_large_say_so(lease: Lease) -> None:
    """Over the kernel's limit for one argument: a clear end, not a broken call."""
    result = await lease.run("true", env={"BIG": "z" * 300_000})
    assert result.exit_code == 126 and "too long" in result.error_text


async def test_a_command_with_an_odd_environment_name_is_refused(lease: Lease) -> None:
    """emberd itself refuses what execve cannot take (aiming-lab/AutoResearchClaw#171)."""
    with pytest.raises(InvalidInput) as caught:
        await lease.client.bind(lease.pod, lease.proof, {"A": "x\0y"})
    assert caught.value.field == "env.A"


async def test_the_background_keeps_running_between_commands(lease: Lease) -> None:
    """A server that one command starts serves the next."""
    started = await lease.sh("(while :; do sleep 0.05; echo x >> ticks; done) >/dev/null 2>&1 & echo $! > pid")
    assert started.survivors and started.exit_code == 0
    assert (await lease.sh("kill -0 $(cat pid) && kill $(cat pid)")).ok


async def test_no_descriptor_leaks_into_a_command(lease: Lease) -> None:
    """A command has 0, 1 and 2 and nothing else of emberd's."""
    result = await lease.run("python3", "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    assert result.text.strip() == "[0, 1, 2, 3]"  # 3 is the listing itself
