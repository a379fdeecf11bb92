"""The process that keeps a command's tree goes on to the next command, and takes nothing along."""

import os
import signal
import socket
from collections.abc import Generator
from typing import Any

import pytest
from fixtures.emberd import Lease, new_id
from fixtures.processes import runs, wait_until
from fixtures.waiting import wait_until as until

from emberpool.pool.client.processes import send_signal, start_process
from emberpool.pool.emberd import channel, shim
from emberpool.pool.emberd.config import Limits
from emberpool.pool.model.command import Command, Outcome
from emberpool.pool.model.ids import ExecutionId

KEEPER = "echo $PPID"
LIMITS = Limits(memory_mb=1, pids=10_000, open_files=256, file_mb=1, time_limit_s=60.0, disk_mb=1)
Keeper = tuple[socket.socket, int]


async def _keeper_of_next(lease: Lease) -> str:
    return (await lease.sh(KEEPER)).text


async def _began(lease: Lease, text: str, before: str = "") -> ExecutionId:
    name, shell = new_id(), f"{before} exec {text}"
    await start_process(lease.client, lease.pod, lease.proof, name, Command(shell=shell, time_limit_s=60))
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
    look = "env | sort; pwd; ulimit -a; grep 'Sig[^Q]' /proc/self/status; ls /proc/self/fd; wc -c"
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


STRIKES = {
    "open files": "resource.prlimit(keeper, resource.RLIMIT_NOFILE, (9, 9))",
    "file size": "resource.prlimit(keeper, resource.RLIMIT_FSIZE, (0, 0))",
    "priority": "os.setpriority(os.PRIO_PROCESS, keeper, 15)",
    "processors": "os.sched_setaffinity(keeper, {min(os.sched_getaffinity(0))})",
    "scheduling": "os.sched_setscheduler(keeper, os.SCHED_BATCH, os.sched_param(0))",
}


@pytest.mark.parametrize("act", STRIKES.values(), ids=STRIKES)
async def test_what_a_job_does_to_its_keeper_holds_for_no_later_command(lease: Lease, act: str) -> None:
    """It would else have less than it was promised, or its output be nobody's."""
    about = "import os; print(os.sched_getaffinity(0), os.sched_getscheduler(0))"
    look = f"ulimit -a; nice; echo err >&2; echo x > file; python3 -c '{about}'"
    before = await lease.sh(look)
    await lease.run("python3", "-c", f"import os, resource; keeper = os.getppid(); {act}")
    after = await lease.sh(look)
    assert (after.text, after.stderr) == (before.text, b"err\n")


async def test_a_stopped_keeper_holds_nothing_up(lease: Lease) -> None:
    """Neither a command too large to lie in its socket, nor wishes that it does not read, nor the end of the lease."""
    strike = "until test -s it; do sleep 0.05; done; kill -STOP $(cat it); touch done; sleep 4713"
    await start_process(lease.client, lease.pod, lease.proof, new_id(), Command(shell=strike, time_limit_s=60))
    await lease.write("it", (await _keeper_of_next(lease)).encode())

    async def done() -> bool:
        return await lease.read("done") == b""

    await until(done)
    assert (await lease.sh("echo fine", env={f"V{n}": "x" * 100_000 for n in range(6)})).text == "fine\n"
    stopped = await _began(lease, "sleep 4714", "sleep 0.3; kill -STOP $PPID;")
    sent = [await send_signal(lease.client, lease.pod, lease.proof, stopped, int(signal.SIGWINCH)) for _ in range(400)]
    assert sent[0] and not sent[-1]
    assert (await lease.client.kill(lease.pod, lease.proof, stopped)).outcome is Outcome.CANCELLED


async def test_a_kill_that_comes_at_once_is_no_less_one(lease: Lease) -> None:
    """Also while the command has not begun, and there is nothing to be killed yet."""
    for _ in range(30):
        await start_process(
            lease.client, lease.pod, lease.proof, name := new_id(), Command(shell="exec sleep 9", time_limit_s=60)
        )
        assert (await lease.client.kill(lease.pod, lease.proof, name)).outcome is Outcome.CANCELLED


async def test_a_keeper_is_replaced_in_time(lease: Lease) -> None:
    """Whatever commands may leave in its memory, it does not grow for ever."""
    keepers = [await _keeper_of_next(lease) for _ in range(shim.MOST_COMMANDS + 1)]
    assert len(set(keepers)) == 2


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
    yield mine, pid
    mine.close()
    os.waitpid(pid, 0)


def _command(text: str, **more: Any) -> channel.Message:
    about = {"env": {"PATH": os.defpath}, "cwd": "/", "tty": False, "stdin_path": "", "stay": True}
    return {**about, "argv": ["/bin/sh", "-c", text], **more}


def _run(keeper: Keeper, message: channel.Message, *wishes: channel.Message) -> int:
    """The wait status of a command, whose wishes are there as soon as itself."""
    assert keeper[0].recv(1) == b"!"
    null = os.open(os.devnull, os.O_RDWR)
    os.kill(keeper[1], signal.SIGSTOP)
    channel.send_packed(keeper[0], channel.packed(message), [null] * 3)
    for wish in wishes:
        channel.send_packed(keeper[0], channel.packed(wish))
    os.kill(keeper[1], signal.SIGCONT)
    os.close(null)
    status, left = channel.receive_end(keeper[0])
    assert not left
    return status


def test_a_wish_reaches_its_own_command_alone(keeper: Keeper) -> None:
    """One that comes with its command is done; one that comes after its end is not done to the next."""
    term: channel.Message = {"do": "signal", "signal": int(signal.SIGTERM)}
    assert _run(keeper, _command("exec sleep 60"), term) == signal.SIGTERM
    channel.send_packed(keeper[0], channel.packed(term))
    assert _run(keeper, _command("sleep 0.1; exit 3")) == 3 << 8


def test_a_keeper_holds_no_file_of_an_ended_command(keeper: Keeper) -> None:
    """However many it has run, also those that were given a file or could not start."""

    def held() -> set[str]:
        keeper[0].recv(1, socket.MSG_PEEK)  # it stands ready again
        return set(os.listdir(f"/proc/{keeper[1]}/fd"))

    _run(keeper, _command("true"))
    before = held()
    for _ in range(3):
        _run(keeper, _command("cat", stdin_path="/etc/hostname"))
        _run(keeper, _command("true", argv=["/no/such/program"]))
        _run(keeper, _command("true", stdin_path="/no/such/file"))
        _run(keeper, _command("true", cwd="/no/such/folder"))
    assert held() == before
