"""emberd itself: reads its configuration, opens the first room, serves, and goes when told."""

import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from emberpool.pool.emberd import guard, kernel
from emberpool.pool.emberd.attest import Attestor
from emberpool.pool.emberd.calls import START_ANEW, Calls, run_warm_up
from emberpool.pool.emberd.config import BadConfig, Config, parse
from emberpool.pool.emberd.connections import Connections
from emberpool.pool.emberd.gpu import GpuError, Gpus
from emberpool.pool.emberd.keeper import Keeper
from emberpool.pool.emberd.layers import Layers
from emberpool.pool.emberd.ledger import Ledger
from emberpool.pool.emberd.manifest import ManifestError
from emberpool.pool.emberd.room import RoomError, Scratch, ZygoteLink
from emberpool.pool.emberd.server import make_server
from emberpool.pool.emberd.signing import Signer
from emberpool.pool.emberd.sweeping import Sweep
from emberpool.pool.emberd.told import told
from emberpool.pool.emberd.zygote import spec_message

if TYPE_CHECKING:
    from emberpool.pool.emberd.tls import Tls

EXIT_REFUSED, EXIT_WARM_UP, EXIT_BROKEN, EXIT_ANEW = 2, 3, 4, 5
LEAVE_S = 0.8
"""Longest wait, at the end, for the zygote to have ended its rooms."""
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, START_ANEW}


class _NotReady(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def main(zygote_socket: socket.socket, zygote_pid: int) -> int:
    """Serve until SIGTERM. Returns the exit status."""
    kernel.set_undumpable()
    # Blocked in every thread, so that they wait for the one place that takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        boot_id, listen, connections = _start(zygote_socket, zygote_pid)
    except _NotReady as error:
        _say({"ready": False, "reason": str(error)})
        _leave(zygote_socket, zygote_pid)
        return error.status
    _say({"ready": True, "boot_id": boot_id, "listen": listen})
    status = _until_told(zygote_pid)
    connections.end()
    if listen.startswith("unix:"):
        os.unlink(listen[5:])
    _leave(zygote_socket, zygote_pid)
    return status


def _start(zygote_socket: socket.socket, zygote_pid: int) -> "tuple[str, str, Connections]":
    try:
        config = parse(told(sys.argv[1:]))
        reason = None if config.allow_host_root else guard.reason_to_refuse()
        if reason is not None:
            raise _NotReady(EXIT_REFUSED, reason)
        if config.scratch_tmpfs_mb:
            flags = kernel.MS_NOSUID | kernel.MS_NODEV
            kernel.mount("tmpfs", config.room.scratch, "tmpfs", flags, f"size={config.scratch_tmpfs_mb}m,mode=755")
        link = ZygoteLink(zygote_socket, zygote_pid)
        config, no_rooms = _settle_rooms(config, link)
        if config.room.mode == "namespaces":
            guard.forbid_user_namespaces()
        return _serve(config, link, no_rooms)
    except BadConfig as error:
        raise _NotReady(EXIT_REFUSED, str(error)) from error
    except (RoomError, GpuError, ManifestError, OSError, ValueError) as error:
        raise _NotReady(EXIT_BROKEN, str(error)) from error


def _settle_rooms(config: Config, link: ZygoteLink) -> "tuple[Config, str]":
    """Hand the zygote what rooms are to be, and find out what they can be; why they have no namespaces, if so."""
    if config.room.mode != "auto":
        link.tell(spec_message(config.room))
        return config, ""
    found = link.ask(spec_message(config.room))
    return config._replace(room=config.room._replace(mode=found["mode"])), found["why"]


def _own_folders(config: Config) -> List[str]:
    """What no job may see the inside of, or is looked at by itself."""
    folders = [config.state_dir, config.room.scratch]
    return folders + ([os.path.dirname(config.listen[5:])] if config.listen.startswith("unix:") else [])


def _serve(config: Config, link: ZygoteLink, no_rooms: str) -> "tuple[str, str, Connections]":
    signer = Signer(config.key, secrets.token_hex(16))
    ledger = Ledger(config.state_dir)
    if ledger.is_anew:
        config = config._replace(standby_mb=0)  # it has had a lease, and a pod never goes back to standby
    scratch = Scratch(config.room, link)
    gpus = Gpus(config.gpus, config.nvml, config.gpus_shared)
    swept = config.room.mode == "plain" and config.room.job_uid
    sweep = Sweep(config.room.job_uid, _own_folders(config), link) if swept else None
    if sweep is not None:
        os.chmod(config.state_dir, 0o700)
        os.chmod(config.room.scratch, 0o755)
        os.chmod(scratch.trash, 0o700)
        if ledger.is_anew:
            sweep.remove_all()  # what outlives the container would be taken for the pod's own
    attestor = Attestor(config.room.mode, link.pid, scratch, gpus, sweep)
    keeper = Keeper(link, scratch, attestor, config.room.mode, config.first_shape())
    keeper.no_rooms = no_rooms
    layers = Layers(
        config.room.scratch, config.room.mode, config.room.limits.disk_mb
    )  # before the first room, which shows them
    keeper.open_first()
    if config.warm_up and keeper.current is not None:
        reason = run_warm_up(config, keeper.current)
        if reason is not None:
            raise _NotReady(EXIT_WARM_UP, reason)
    calls = Calls(config, signer, ledger, keeper, layers, gpus)
    connections = Connections()
    server, listen = make_server(config.listen, signer, calls, connections, _tls(config))
    attestor.take_baseline()
    calls.ports.take_baseline()
    if not config.standby_mb:
        keeper.prepare_spare()  # a pod that stands by holds as little as it can
    threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    return signer.boot_id, listen, connections


def _tls(config: Config) -> "Optional[Tls]":
    if config.tls is None:
        return None
    try:
        from emberpool.pool.emberd.tls import Tls
    except ImportError as error:
        raise BadConfig(f"tls: this image's Python has no TLS: {error}") from error
    return Tls(config.tls)


def _say(line: Dict[str, Any]) -> None:
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:
        os.dup2(2, 1)  # whoever started us does not listen; serving goes on


def _until_told(zygote_pid: int) -> int:
    """Reap orphans until a signal says to leave (0, or 5 to be started anew), or the zygote ends, without which no room
    can be made (4)."""
    while True:
        number = signal.sigwait(_SIGNALS)
        if number != signal.SIGCHLD:
            return EXIT_ANEW if number == START_ANEW else 0
        ended = _reap()
        if zygote_pid in ended:
            print(f"emberd: the zygote ended, wait status {ended[zygote_pid]}", file=sys.stderr, flush=True)
            return EXIT_BROKEN


def _reap() -> Dict[int, int]:
    """Wait status of every child that has ended, by PID."""
    gone: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return gone
        if pid == 0:
            return gone
        gone[pid] = status


def _leave(zygote_socket: socket.socket, zygote_pid: int) -> None:
    """The zygote ends every room when it sees us gone."""
    zygote_socket.shutdown(socket.SHUT_RDWR)
    deadline = time.monotonic() + LEAVE_S
    while time.monotonic() < deadline and zygote_pid not in _reap():
        if not os.path.exists(f"/proc/{zygote_pid}"):
            break
        time.sleep(0.005)
