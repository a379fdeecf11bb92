"""A soak ends well only if scripts and model agreed all along; where they differ it says where, and with which seed."""

import os
import re
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
SPOILED = """
from emberpool.pool.index import scripts

real = scripts._file
scripts._file = lambda name: "return {'ok'}" if name == "end_call" else real(name)
"""
"""What each process of a soak runs as it starts: its script forgets that a call ended."""


def soaked(count: Path, *more_words: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """A short soak; what lies in `folder` as sitecustomize.py is run by each of its processes first."""
    words = [sys.executable, str(SOAK), "--steps", "400", "--processes", "1", "--count", str(count), *more_words]
    more = {} if folder is None else {"PYTHONPATH": str(folder)}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, **more}, check=False)


def test_a_short_one_counts_its_steps(tmp_path: Path) -> None:
    """It ends well, and its file says how many steps have been run."""
    count = tmp_path / "steps.txt"
    done = soaked(count)
    assert done.returncode == 0, done.stderr
    assert count.read_text() == "400\n"
    seed = re.match(r"seed (\d+)\n", done.stdout)
    assert seed and f"400 steps in 1 runs from seed {seed[1]}," in done.stdout and "no difference" in done.stdout


def test_a_difference_ends_it_with_its_seed(tmp_path: Path) -> None:
    """Where a script forgets what the model remembers, it fails, and names the difference and the run's seed."""
    (tmp_path / "sitecustomize.py").write_text(SPOILED)
    done = soaked(tmp_path / "steps.txt", "--seed", "7", folder=tmp_path)
    assert done.returncode == 1, done.stdout
    assert done.stdout.startswith("seed 7\n")
    assert "run of seed 7 after 0 steps: AssertionError: " in done.stderr, done.stderr
    assert re.search("scripts .*, (the )?model ", done.stderr), done.stderr
