"""A soak that is told to end leaves no process behind: neither those that drive nor their servers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.processes import command_line, descendants, gone, wait_until

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_nothing_runs_on(told: signal.Signals) -> None:
    """SIGTERM, or Ctrl-C in a terminal: its processes end, and the Redis of each."""
    words = [sys.executable, str(SOAK), "--steps", "1000000000", "--processes", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as soak:
        try:
            servers: set[int] = set()

            def serving() -> bool:
                servers.update(pid for pid in descendants(soak.pid) if "redis-server" in command_line(pid))
                return len(servers) == 2

            wait_until(serving, 60)
            family = descendants(soak.pid)
            soak.send_signal(told)
            assert soak.wait(30) == 128 + told
            wait_until(lambda: all(gone(pid) for pid in family), 10)
        finally:
            soak.kill()
