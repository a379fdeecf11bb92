"""A sandbox whose disk is full may be tidied up by its next commands, but not filled again."""

import os
import time
from pathlib import Path

from emberpool.pool.emberd.diskusage import DiskUsage

MIB = 1 << 20
LOOKS_S = 0.1
"""Several looks at a folder of a few files."""


def fill(file: Path, mib: int) -> None:
    """A file of that many MiB, on disk."""
    with file.open("wb") as data:
        data.write(bytes(mib * MIB))
        os.fsync(data.fileno())


def ends(usage: DiskUsage, folder: Path) -> int:
    """How often jobs are ended while nothing changes."""
    until, found = time.monotonic() + LOOKS_S, 0
    while time.monotonic() < until:
        found += usage.exceeded([str(folder)], [])
    return found


def test_what_was_tidied_up_is_not_filled_again(tmp_path: Path) -> None:
    """Jobs end once for a disk over its limit; the next ones live while they make it emptier, and end once they fill
    again what was freed, below the limit or not yet."""
    usage = DiskUsage(8 * MIB)
    fill(tmp_path / "a", 6)
    assert ends(usage, tmp_path) == 0
    fill(tmp_path / "b", 10)
    assert ends(usage, tmp_path) == 1
    fill(tmp_path / "b", 4)
    assert ends(usage, tmp_path) == 0, "a job that tidies up, and is not done yet, was ended"
    fill(tmp_path / "b", 9)
    assert ends(usage, tmp_path) == 1, "what was freed was filled again"
    (tmp_path / "b").unlink()
    assert ends(usage, tmp_path) == 0
    fill(tmp_path / "b", 3)
    assert ends(usage, tmp_path) == 1
