"""The process that keeps a command's tree goes on to the next command, and takes nothing along."""

import os
import signal
import socket
from collections.abc import Generator
from typing import Any

import pytest
from fixtures.emberd import Lease, new_id
from fixtures.processes import runs, wait_until

from emberpool.pool.client.processes import start_process
from emberpool.pool.emberd import channel, shim
from emberpool.pool.emberd.config import Limits
from emberpool.pool.model.command import Command, Outcome
from emberpool.pool.model.ids import ExecutionId

KEEPER = "echo $PPID"
LIMITS = Limits(memory_mb=1, pids=10_000, open_files=256, file_mb=1, time_limit_s=60.0, disk_mb=1)
Keeper = tuple[socket.socket, int]


async def _keeper_of_next(lease: Lease) -> str:
    return (await lease.sh(KEEPER)).text


async def _began(lease: Lease, text: str) -> ExecutionId:
    name = new_id()
    await start_process(lease.client, lease.pod, lease.proof, name, Command(shell=f"exec {text}", time_limit_s=60))
    wait_until(lambda: runs(text))
    return name


async def test_one_process_keeps_one_command_after_another(lease: Lease) -> None:
    """A fork for each would cost more than a short command does: also after one that cannot be started."""
    first = await _keeper_of_next(lease)
    assert (await lease.run("/no/such/program")).exit_code == 127
    assert [await _keeper_of_next(lease) for _ in range(3)] == [first] * 3


async def test_nothing_of_a_command_is_there_for_the_next(lease: Lease) -> None:
    """Neither its environment nor its search path, folder, input, limits, ignored signals nor open files."""
    await lease.sh("mkdir -p there && echo given > input")
    look = "env | sort; pwd; ulimit -a; grep Sig /proc/self/status; ls /proc/self/fd; wc -c"
    before = await lease.sh(look)
    odd = "ulimit -n 10; trap '' TERM; exec 9>/dev/null; cat"
    await lease.sh(odd, env={"LEFT": "1", "PATH": "/usr/bin:/bin:/odd"}, cwd="there", stdin=b"x")
    await lease.sh("cat", stdin_path="input")
    assert (await lease.sh(look)).text == before.text


async def test_who_keeps_survivors_keeps_nothing_else(lease: Lease) -> None:
    """They can be ended with the command that left them, and the next command lives."""
    name = new_id()
    leave = Command(shell=f"{KEEPER}; sleep 4711 >/dev/null 2>&1 &", time_limit_s=60)
    left = await lease.client.run(lease.pod, lease.proof, name, leave)
    assert left.survivors
    beside = await _began(lease, "sleep 4712")
    assert await _keeper_of_next(lease) not in left.text
    await lease.client.kill(lease.pod, lease.proof, name)
    wait_until(lambda: not runs("sleep 4711"))
    assert runs("sleep 4712")
    await lease.client.kill(lease.pod, lease.proof, beside)


async def test_a_keeper_whose_tree_was_killed_keeps_no_other(lease: Lease) -> None:
    """Whoever kills a tree kills all that it finds below its keeper, at whatever moment."""
    late = await lease.sh(f"{KEEPER}; sleep 60", time_limit_s=0.3)
    assert late.outcome is Outcome.TIMED_OUT
    assert await _keeper_of_next(lease) not in late.text


@pytest.mark.parametrize("name", ["STOP", "KILL"])
async def test_a_job_that_strikes_its_keeper_hurts_no_later_command(lease: Lease, name: str) -> None:
    """What it was stopped by is undone, and one that was killed is replaced."""
    await lease.sh(f"kill -{name} $PPID; sleep 0.1", time_limit_s=0.5)
    assert (await lease.sh("echo fine")).text == "fine\n"


@pytest.fixture
def keeper() -> Generator[Keeper]:
    """A keeper alone, and our end of its socket."""
    mine, other = channel.pair()
    pid = os.fork()
    if pid == 0:
        mine.close()
        shim.stand_by(other, LIMITS, 10_000)
    other.close()
    mine.settimeout(20)
    assert mine.recv(1) == b"!"
    yield mine, pid
    mine.close()
    os.waitpid(pid, 0)


def _command(text: str, **more: Any) -> channel.Message:
    about = {"env": {"PATH": os.defpath}, "cwd": "/", "tty": False, "stdin_path": "", "stay": True}
    return {**about, "argv": ["/bin/sh", "-c", text], **more}


def _run(keeper: Keeper, message: channel.Message, *wishes: channel.Message) -> int:
    """The wait status of a command, whose wishes are there as soon as itself."""
    null = os.open(os.devnull, os.O_RDWR)
    os.kill(keeper[1], signal.SIGSTOP)
    channel.send_down(keeper[0], message, [null] * 3)
    for wish in wishes:
        channel.send_down(keeper[0], wish)
    os.kill(keeper[1], signal.SIGCONT)
    os.close(null)
    status, left = channel.receive_end(keeper[0])
    assert not left
    return status


def test_a_wish_reaches_its_own_command_alone(keeper: Keeper) -> None:
    """One that comes with its command is done; one that comes after its end is not done to the next."""
    term: channel.Message = {"do": "signal", "signal": int(signal.SIGTERM)}
    assert _run(keeper, _command("sleep 60"), term) == signal.SIGTERM
    channel.send_down(keeper[0], term)
    assert _run(keeper, _command("sleep 0.1; exit 3")) == 3 << 8


def test_a_keeper_holds_no_file_of_an_ended_command(keeper: Keeper) -> None:
    """However many it has run, also those that were given a file or could not start."""

    def held() -> set[str]:
        return set(os.listdir(f"/proc/{keeper[1]}/fd"))

    _run(keeper, _command("true"))
    before = held()
    for _ in range(3):
        _run(keeper, _command("cat", stdin_path="/etc/hostname"))
        _run(keeper, _command("true", argv=["/no/such/program"]))
        _run(keeper, _command("true", stdin_path="/no/such/file"))
        _run(keeper, _command("true", cwd="/no/such/folder"))
    assert held() == before
