"""A child process ends with its block, when asked, and at the latest with its parent."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.processes import gone, wait_until

from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.process import ChildProcess

PARENT = """
import asyncio, sys
from pathlib import Path
from emberpool.worker.stack.process import ChildProcess

async def main():
    async with ChildProcess(["sleep", "600"], log=Path(sys.argv[1]), name="sleeper") as child:
        print(child.pid, flush=True)
        await child.wait()

asyncio.run(main())
"""


def test_a_killed_parent_takes_its_child_along(tmp_path: Path) -> None:
    """SIGKILL to the parent ends the child, though neither of them could run any code of ours."""
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        # Only once the launcher has become the program is the program's own death at stake.
        wait_until(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0])
        parent.kill()
    wait_until(lambda: gone(child))


def test_a_launcher_whose_parent_is_gone_starts_nothing(tmp_path: Path) -> None:
    """A parent that died before the kernel knew of the wish is noticed by the launcher itself."""
    child = ChildProcess(["touch", str(tmp_path / "started")], log=tmp_path / "log", name="late")
    argv = [*child.launch_argv(parent=os.getpid() + 1)]
    ended = subprocess.run(argv, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "the parent is gone" in ended.stderr
    assert not (tmp_path / "started").exists()


async def test_leaving_the_block_ends_it(tmp_path: Path) -> None:
    """A child that heeds SIGTERM is gone at once."""
    async with ChildProcess(["sleep", "600"], log=tmp_path / "log", name="sleeper") as child:
        assert child.alive
    assert not child.alive
    assert child.returncode == -signal.SIGTERM
    assert gone(child.pid)


async def test_a_deaf_child_and_what_it_started_are_killed(tmp_path: Path) -> None:
    """A child that ignores SIGTERM is killed after stop_s, its own children with it."""
    script = "trap '' TERM; sleep 600 & echo $!; wait"
    async with ChildProcess(["sh", "-c", script], log=tmp_path / "log", name="deaf", stop_s=0.2) as child:
        wait_until(lambda: child.log_tail() != "")
        grandchild = int(child.log_tail())
    assert child.returncode == -signal.SIGKILL
    wait_until(lambda: gone(grandchild))


async def test_a_cancelled_stop_still_leaves_nothing(tmp_path: Path) -> None:
    """Cancelling the wait for a graceful end kills instead."""
    async with ChildProcess(
        ["sh", "-c", "trap '' TERM; echo up; read x </dev/null; while :; do sleep 60; done"],
        log=tmp_path / "log",
        name="deaf",
        stop_s=60.0,
    ) as child:
        wait_until(lambda: child.log_tail() != "")
        stop = asyncio.ensure_future(child.stop())
        await asyncio.sleep(0)
        stop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stop
        assert await child.wait() == -signal.SIGKILL


async def test_an_early_end_is_told_with_the_last_lines(tmp_path: Path) -> None:
    """The error names the part, the status, the log and what the program said last."""
    async with ChildProcess(["sh", "-c", "echo no space left >&2; exit 3"], log=tmp_path / "log", name="Part") as child:
        assert await child.wait() == 3
    error = child.ended()
    assert isinstance(error, StackError)
    assert (error.part, error.cause) == ("Part", "ended with exit status 3")
    assert error.log_tail == "no space left"
    assert str(tmp_path / "log") in error.remedy


async def test_a_program_that_is_not_there_is_an_early_end(tmp_path: Path) -> None:
    """The cause stands in the log."""
    async with ChildProcess(["/no/such/program"], log=tmp_path / "log", name="Part") as child:
        assert await child.wait() == 1
    assert child.log_tail() == "cannot run /no/such/program: No such file or directory"


async def test_the_last_log_is_kept(tmp_path: Path) -> None:
    """A new start moves the old log aside, so that the cause of a crash can be read afterwards."""
    for word in ("first", "second"):
        async with ChildProcess(["echo", word], log=tmp_path / "logs" / "a.log", name="echo") as child:
            await child.wait()
    assert (tmp_path / "logs" / "a.log").read_text() == "second\n"
    assert (tmp_path / "logs" / "a.log.1").read_text() == "first\n"


async def test_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    """It has a process group of its own: the parent takes its children down in order."""
    async with ChildProcess(["sleep", "600"], log=tmp_path / "log", name="sleeper") as child:
        assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
