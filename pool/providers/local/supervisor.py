"""The process that owns this machine's pods: `python -m emberpool.pool.providers.local.supervisor`.

It outlives workers, so that pods stay warm when one restarts, and dies with the process that started it. Its own death,
also by SIGKILL, is the death of every pod: the kernel sees to that.
"""

import argparse
import asyncio
import ctypes
import fcntl
import logging
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.providers.local.bubblewrap import Bubblewrap
from emberpool.pool.providers.local.data_folder import DataFolder
from emberpool.pool.providers.local.emberd_folder import copy_emberd
from emberpool.pool.providers.local.etc_folder import build_etc
from emberpool.pool.providers.local.host import inspect_host
from emberpool.pool.providers.local.launcher import PR_SET_PDEATHSIG
from emberpool.pool.providers.local.pod_spec import Host, check_socket_path
from emberpool.pool.providers.local.pods import Pods
from emberpool.pool.providers.local.root_view import read_host_top, this_interpreter
from emberpool.pool.providers.local.service import Service
from emberpool.pool.providers.local.uids import UidPool, uid_range

log = logging.getLogger(__name__)

KEY_BYTES = 32
CLOSE_S = 2.0
"""Seconds that answers under way get at the end."""


def supervisor_argv(socket_path: Path, data_dir: Path, key_file: Path, parent: int | None = None) -> list[str]:
    """The command line that starts a supervisor.

    Start it from the main thread: the kernel ties its life to the thread, not the process, that started it.
    `parent` is the pid whose death ends it; default: whoever is its parent when it starts.
    """
    argv = [sys.executable, "-P", "-m", "emberpool.pool.providers.local.supervisor"]
    argv += ["--socket", str(socket_path), "--data-dir", str(data_dir), "--key-file", str(key_file)]
    return argv if parent is None else [*argv, "--parent", str(parent)]


def die_with_parent(parent: int | None) -> None:
    """Ask the kernel for SIGTERM at the parent's death, and end at once if it is dead already."""
    expected = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != expected:
        raise SystemExit("the parent is gone: nothing to supervise for")


def read_key(path: Path) -> bytes:
    """The pool key: 64 hex digits or more, in a file that only its owner can read.

    Raises:
        InvalidInput: it cannot be read, is no key, or is open to others.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("key-file", f"{path} cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidInput("key-file", f"{path} is open to others: chmod 600 it")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise InvalidInput(
            "key-file", f"{path} must hold at least {2 * KEY_BYTES} hex digits, as `openssl rand -hex 32` makes"
        )
    return key


def listen(path: Path) -> socket.socket:
    """A unix socket for its owner alone, in a folder for its owner alone.

    Raises:
        InvalidInput: the path is too long, or the folder is open to others.
        OSError: it cannot be made.
    """
    check_socket_path(path, "socket")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.parent.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidInput(
            "socket", f"{path.parent} must be a folder of your own that is closed to others: chmod 700 it"
        )
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        server.bind(str(path))
    finally:
        os.umask(before)
    return server


def lock_data(data: Path) -> int:
    """Hold the data folder against a second supervisor; the lock goes with the process.

    Raises:
        InvalidInput: another one holds it.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(data / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InvalidInput("data-dir", f"another supervisor uses {data}: stop it, or give another folder") from None
    return handle


def read_host(data: DataFolder) -> Host:
    """What every pod shares. Blocks while bubblewrap is tried.

    Raises:
        OSError: /etc or emberd's folder for pods cannot be made.
    """
    report = inspect_host()
    log.info("isolation: %s (%s)", report.isolation or "none", report.why)
    found = report.bwrap
    return Host(
        python=this_interpreter(),
        top=read_host_top(),
        emberd=copy_emberd(data.emberd),
        etc=build_etc(data.etc),
        bwrap=Bubblewrap(found.path, found.libraries) if found else None,
        why_no_bwrap=report.why,
    )


async def serve(server: socket.socket, pods: Pods) -> None:
    """Answer until SIGTERM or SIGINT, then delete every pod."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(Service(pods).app(), access_log=None, shutdown_timeout=CLOSE_S)
    await runner.setup()
    try:
        async with pods.running():
            await web.SockSite(runner, server).start()
            log.info("supervisor %s serves as pid %d", pods.boot, os.getpid())
            await stop.wait()
            pods.stop_waits()
    finally:
        await runner.cleanup()


def _raise_open_files() -> None:
    """Each pod costs five descriptors, and the usual soft limit of 1,024 is for programs that use select()."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(socket_path: Path, data_dir: Path, key_file: Path) -> None:
    """Be the supervisor.

    Raises:
        InvalidInput: an argument cannot be used; it is named.
        OSError: a folder or the socket cannot be made.
    """
    os.umask(0o077)
    _raise_open_files()
    socket_path, data_dir = socket_path.absolute(), data_dir.absolute()
    data = DataFolder(data_dir, socket_path.parent)
    check_socket_path(data.of("", "0" * 16).socket, "socket")
    key = read_key(key_file)
    handle = lock_data(data_dir)
    try:
        server = listen(socket_path)
        data.prepare()
        uids = uid_range()
        pods = Pods(read_host(data), data, key, UidPool(uids) if uids else None)
        asyncio.run(serve(server, pods))
    finally:
        socket_path.unlink(missing_ok=True)
        os.close(handle)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM, 2 if it could not start."""
    parser = argparse.ArgumentParser(prog="emberpool-supervisor", description="Owns the local pods of one stack.")
    parser.add_argument(
        "--socket",
        type=Path,
        required=True,
        help="unix socket for workers, in a folder closed to others, with a short path",
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder for pods and their logs")
    parser.add_argument("--key-file", type=Path, required=True, help="file with the pool key, 64 hex digits, mode 0600")
    parser.add_argument("--parent", type=int, help="pid whose death ends it (default: the parent)")
    options = parser.parse_args(argv)
    die_with_parent(options.parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        run(options.socket, options.data_dir, options.key_file)
    except (InvalidInput, OSError) as error:
        log.error("cannot start: %s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
