"""0 ok, 1 it failed, 2 wrong usage; one line with the cause and one with the remedy, never a traceback."""

from pathlib import Path

import pytest
from fixtures.command_line import emberpool

COMMANDS = "dev|demo|doctor|worker|run|rollout|schema|profile check|pool status|pool top|pool budget|pool drain"


@pytest.mark.parametrize("command", [(), *(tuple(one.split()) for one in COMMANDS.split("|"))])
def test_every_command_explains_itself(command: tuple[str, ...], tmp_path: Path) -> None:
    """--help ends with 0 and, for a command, shows an example."""
    done = emberpool(*command, "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not command or "Example" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


@pytest.mark.parametrize(
    "arguments",
    [("no-such-command",), ("dev", "--no-such-option"), ("dev", "--workers", "0"), ("dev", "--ui-port", "x"),
     ("profile", "check"), ()],
)  # fmt: skip
def test_wrong_usage_is_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A mistyped command, option or value is told apart from a failure, and nothing is started."""
    done = emberpool(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    """--version needs no command."""
    done = emberpool("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("emberpool 0.")


def test_a_failure_is_one_red_line_and_a_remedy(tmp_path: Path) -> None:
    """A data folder that cannot be made is named; there is no traceback, unless it is asked for."""
    (tmp_path / "file").write_text("")
    done = emberpool("dev", "--data-dir", "file/data", cwd=tmp_path)
    assert done.returncode == 1
    cause, remedy = done.stderr.splitlines()
    assert cause.startswith("error: data folder: ") and "file/data cannot be used" in cause
    assert remedy.startswith("remedy: ") and "--data-dir" in remedy
    debugged = emberpool("--debug", "dev", "--data-dir", "file/data", cwd=tmp_path)
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr


def test_a_closed_pipe_is_no_crash(tmp_path: Path) -> None:
    """`emberpool ... | head` leaves no traceback."""
    import subprocess

    from fixtures.command_line import EMBERPOOL, clean_env

    with subprocess.Popen(
        [*EMBERPOOL, "doctor", "--json"], cwd=tmp_path, env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
