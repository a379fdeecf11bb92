"""The data folder of a stack: one owner at a time, one key for ever."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.folder import StackFolder

HOLD = """
import sys, time
from pathlib import Path
from emberpool.worker.stack.folder import StackFolder
folder = StackFolder(Path(sys.argv[1])).__enter__()
print(folder.run_dir, flush=True)
sys.stdin.read()
"""


def test_a_second_stack_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    """It names the folder and the process, and the option to change."""
    with StackFolder(tmp_path), pytest.raises(StackError, match=rf"in use by another stack \(pid {os.getpid()}\)") as e:
        StackFolder(tmp_path).__enter__()
    assert "--data-dir" in e.value.remedy


def test_a_killed_stack_leaves_the_folder_free_and_its_sockets_are_removed(tmp_path: Path) -> None:
    """SIGKILL lets go of the lock; the next owner removes the runtime folder that was left."""
    argv = [sys.executable, "-P", "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        other.kill()
    assert left.is_dir()
    with StackFolder(tmp_path) as folder:
        assert folder.run_dir != left
        assert not left.exists()


def test_the_key_is_private_and_made_once(tmp_path: Path) -> None:
    """32 random bytes in hex, mode 0600, the same at every start."""
    with StackFolder(tmp_path / "data") as folder:
        key = folder.key_file.read_text()
        assert len(bytes.fromhex(key)) == 32
        assert stat.S_IMODE(folder.key_file.stat().st_mode) == 0o600
    with StackFolder(tmp_path / "data") as folder:
        assert folder.key_file.read_text() == key


def test_sockets_fit_however_deep_the_data_folder_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime folder is private, short, and gone afterwards; an unusable XDG_RUNTIME_DIR is passed over."""
    for root in ("/no/such/folder", str(tmp_path / ("x" * 80))):
        Path(root).mkdir() if root.startswith(str(tmp_path)) else None
        monkeypatch.setenv("XDG_RUNTIME_DIR", root)
        with StackFolder(tmp_path / ("deep" * 30)) as folder:
            run_dir = folder.run_dir
            assert len(os.fsencode(run_dir)) <= 60
            assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
            assert folder.short_data_dir.samefile(folder.data_dir)
        assert not run_dir.exists()
        assert folder.key_file.exists()


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    """A file in the way is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="cannot be used: Not a directory"):
        StackFolder(tmp_path / "file" / "data").__enter__()
