"""emberd in a Kubernetes pod: its configuration comes in files, its UID from the API server."""

import json
import subprocess
from pathlib import Path

import pytest
from fixtures.emberd import PYTHON, Starter, configuration, first_line

from emberpool.pool.emberd.told import told


def test_the_uid_comes_from_its_own_file(tmp_path: Path) -> None:
    """The configuration is written before the pod exists: only the mounted file knows the UID."""
    (tmp_path / "config").write_text(json.dumps({"pod": "p", "uid": "guessed"}))
    (tmp_path / "uid").write_text("4f1c\n")
    assert json.loads(told([str(tmp_path)])) == {"pod": "p", "uid": "4f1c"}


def test_a_folder_without_a_configuration_is_an_error(tmp_path: Path) -> None:
    """What cannot be read, or is no object, is said."""
    with pytest.raises(OSError, match="config"):
        told([str(tmp_path)])
    (tmp_path / "config").write_text("[]")
    with pytest.raises(ValueError, match="must be a JSON object"):
        told([str(tmp_path)])


def test_emberd_serves_what_the_folder_says(emberds: Starter) -> None:
    """Started with a folder it reads no standard input, and serves."""
    folder = emberds.folder()
    mounted = folder / "told"
    mounted.mkdir()
    config = configuration("plain", "pod-told", folder) | {"test_allow_host_root": True}
    (mounted / "config").write_text(json.dumps({key: value for key, value in config.items() if key != "uid"}))
    (mounted / "uid").write_text("uid-of-the-server")
    process = subprocess.Popen(
        [PYTHON, "-I", f"{folder}/emberd/main.py", str(mounted)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert first_line(process)["ready"] is True
    process.terminate()
    assert process.wait(5) == 0
