"""A start that cannot work ends with status 2 and one line that names the argument and the remedy."""

import subprocess
from pathlib import Path

import pytest

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.pool.providers.local.supervisor import read_key, supervisor_argv

KEY = "ab" * 32


def key_file(folder: Path, text: str = KEY, mode: int = 0o600) -> Path:
    """A key file."""
    path = folder / "key"
    path.write_text(text)
    path.chmod(mode)
    return path


def start(socket: Path, data: Path, key: Path) -> tuple[int, str]:
    """Exit status and standard error of a start that must fail."""
    done = subprocess.run(supervisor_argv(socket, data, key), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_a_socket_path_that_is_too_long_names_the_limit_and_a_remedy(tmp_path: Path) -> None:
    """A unix socket takes 107 bytes; a longer path fails at the start, not at the first pod."""
    deep = tmp_path / ("x" * 90)
    status, text = start(deep / "s", tmp_path / "data", key_file(tmp_path))
    assert status == 2
    assert "107" in text and "use a shorter folder" in text
    with pytest.raises(InvalidInput, match="107"):
        LocalProvider(Profile(name="py"), deep / "sock" / "s" / "s")


def test_a_folder_open_to_others_is_no_place_for_the_socket(tmp_path: Path) -> None:
    """Whoever could swap the socket could be asked for pods, so that the folder must be closed."""
    tmp_path.chmod(0o755)
    status, text = start(tmp_path / "s", tmp_path / "data", key_file(tmp_path))
    assert status == 2 and "chmod 700" in text


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """The pool key opens every pod."""
    with pytest.raises(InvalidInput, match="chmod 600"):
        read_key(key_file(tmp_path, mode=0o644))


@pytest.mark.parametrize("text", ["", "ab" * 16, "no hex", "zz" * 32])
def test_a_key_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """Too short, or no hex digits: the text says how to make one."""
    with pytest.raises(InvalidInput, match="openssl rand -hex 32"):
        read_key(key_file(tmp_path, text))


def test_a_key_is_read_as_hex(tmp_path: Path) -> None:
    """With the newline that editors and `openssl` leave."""
    assert read_key(key_file(tmp_path, KEY + "\n")) == bytes.fromhex(KEY)
