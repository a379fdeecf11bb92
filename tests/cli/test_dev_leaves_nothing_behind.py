"""`emberpool dev`: up when it says so, and gone with all its parts however it ends."""

import os
import re
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from fixtures.command_line import EMBERPOOL, clean_env, emberpool
from fixtures.processes import command_line, descendants, gone, wait_until

UP = "Ctrl-C takes it down."
START_S = 90.0


class Dev:
    """A running `emberpool dev` and what it printed."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self.process, self._out = process, out

    @property
    def output(self) -> str:
        return self._out.read_text()

    def parts(self) -> dict[str, int]:
        """Pid of each part, by a word of its command line."""
        words = ("temporal server", "redis-server", "local.supervisor", "worker.cli worker", "emberd")
        lines = {pid: command_line(pid) for pid in descendants(self.process.pid)}
        return {word: pid for word in words for pid, line in lines.items() if word in line}


@contextmanager
def running_dev(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Generator[Dev]:
    """Start it, wait until it is up, and take care that it is gone afterwards."""
    out = folder / "dev.out"
    with out.open("wb") as output:
        process = subprocess.Popen(
            [*EMBERPOOL, "dev", *arguments], cwd=folder, env=clean_env(env), stdout=output, stderr=output
        )
    try:
        dev = Dev(process, out)
        wait_until(lambda: UP in dev.output or process.poll() is not None, START_S)
        assert UP in dev.output, dev.output
        yield dev
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_every_end_takes_all_parts_along(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C, SIGTERM and SIGKILL: by pid, no server, supervisor, worker or pod is left."""
    with running_dev(tmp_path) as dev:
        wait_until(lambda: len(dev.parts()) == 5, 30.0)
        below = descendants(dev.process.pid)
        dev.process.send_signal(number)
        assert dev.process.wait(60.0) == code, dev.output
        wait_until(lambda: all(gone(pid) for pid in below), 10.0)
    assert "Traceback" not in dev.output


def test_it_prints_addresses_that_answer_within_100_columns(tmp_path: Path) -> None:
    """The table names Temporal, its UI, queue, profiles and the data folder; the asked-for UI port is used."""
    (tmp_path / "p.yaml").write_text("[{name: small, max_pods: 1}, {name: tiny, min_warm: 0}]\n")
    with running_dev(tmp_path, "--ephemeral", "--profiles", "p.yaml") as dev:
        assert re.search(r"^Temporal +127\.0\.0\.1:\d+, namespace default *$", dev.output, re.M)
        assert re.search(r"^Temporal UI +http://127\.0\.0\.1:\d+ *$", dev.output, re.M)
        assert re.search(r"^Profiles +small, tiny *$", dev.output, re.M)
        assert max(len(line) for line in dev.output.splitlines()) <= 100
        folder = Path(re.findall(r"^Data and logs +(\S+) *$", dev.output, re.M)[0])
        assert folder.is_dir() and folder.parent != tmp_path
        dev.process.send_signal(signal.SIGTERM)
        dev.process.wait(60.0)
        assert not folder.exists()
    assert not (tmp_path / ".emberpool").exists()


def test_a_part_that_dies_is_named(tmp_path: Path) -> None:
    """When a server ends by itself the command fails with its name and takes the rest down."""
    with running_dev(tmp_path, "--ephemeral") as dev:
        below = descendants(dev.process.pid)
        os.kill(dev.parts()["temporal server"], signal.SIGKILL)
        assert dev.process.wait(60.0) == 1
        assert "error: Temporal: was ended by SIGKILL" in dev.output
        wait_until(lambda: all(gone(pid) for pid in below), 10.0)


def test_a_second_one_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    """It names the folder, the owner and the option; the first one goes on."""
    with running_dev(tmp_path) as dev:
        second = emberpool("dev", cwd=tmp_path)
        assert second.returncode == 1
        assert f"in use by another stack (pid {dev.process.pid})" in second.stderr
        assert "--data-dir" in second.stderr
        assert dev.process.poll() is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TEMPORAL_ADDRESS", "127.0.0.1:1"), ("EMBERPOOL_REDIS_URL", "redis://:secret@127.0.0.1:1/0")],
)
def test_a_server_of_ones_own_that_does_not_answer_is_named(variable: str, value: str, tmp_path: Path) -> None:
    """The variable is named in cause and remedy; a password in it is not repeated."""
    done = emberpool("dev", cwd=tmp_path, env={variable: value})
    assert done.returncode == 1
    assert done.stderr.count(variable) == 2
    assert "secret" not in done.stderr


def test_a_wrong_setting_is_named_by_its_variable(tmp_path: Path) -> None:
    """Not by a traceback of the library that checks it."""
    done = emberpool("dev", "--ephemeral", cwd=tmp_path, env={"EMBERPOOL_HEARTBEAT_S": "-1"})
    assert done.returncode == 1
    cause, remedy = done.stderr.splitlines()
    assert cause.startswith("error: EMBERPOOL_HEARTBEAT_S (Settings): Input should be greater than 0.1")
    assert "EMBERPOOL_HEARTBEAT_S" in remedy
