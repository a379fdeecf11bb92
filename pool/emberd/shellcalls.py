"""The shells of the current lease, by id, and the two calls on them."""

import threading
from typing import Any, Dict

from emberpool.pool.emberd import exec_request
from emberpool.pool.emberd.exec_request import Request
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.executions import Executions
from emberpool.pool.emberd.gpu import Gpus
from emberpool.pool.emberd.refusal import Refused
from emberpool.pool.emberd.room import Room
from emberpool.pool.emberd.shell import LOOP, Shell, ShellCommand

CLOSED_WAIT_S = 10.0


class Shells:
    """Safe from any thread."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions
        self._lock = threading.Lock()
        self._by_id: Dict[str, Shell] = {}

    def start(self, body: Dict[str, Any], env: Dict[str, str], room: Room, gpus: Gpus) -> Execution:
        """Start a shell, or find the one of this id. The caller must hold the ledger's lock. Raises RoomError."""
        name = exec_request.checked_id(body)
        program = exec_request.checked_text("shell", body.get("shell") or "/bin/sh")
        asked = {
            "id": execution_id(name),
            "argv": [program, "-c", LOOP],
            "env": body.get("env"),
            "cwd": body.get("cwd"),
        }
        request = exec_request.parse(dict(asked, output_limit=4096), env, room.work, 1.0)._replace(title=program)
        request.env.update(gpus.visible(request.env))

        def begin(wanted: Request) -> Execution:
            shell = Shell(wanted, room)
            with self._lock:
                self._by_id[name] = shell
            return shell.execution

        return self._executions.start_or_join(request, begin)

    def run(self, name: str, body: Dict[str, Any], ceiling_s: float) -> Execution:
        """Run a text in a shell, or find the one of this id. The caller must hold the ledger's lock.

        Raises:
            Refused: 404 unknown_execution; 409 shell_over, with its end, for a new text in a shell that has ended.
        """
        shell = self._known(name)
        text = exec_request.checked_text("text", body.get("text"))
        asked = dict(body, argv=["shell"], shell=None, cwd=None, env=None, tty=None)
        request = exec_request.parse(asked, {}, "/", ceiling_s)._replace(title=" ".join(text.split())[:200])

        def begin(wanted: Request) -> Execution:
            if shell.ended:
                end = shell.execution.result
                assert end is not None
                raise Refused(409, "shell_over", f"{end['outcome']}:{end['exit_code']}:{end['signal']}")
            return ShellCommand(wanted, text, shell)

        return self._executions.start_or_join(request, begin)

    def forget_all(self) -> None:
        """The lease is over: what runs is ended with its room."""
        with self._lock:
            shells, self._by_id = list(self._by_id.values()), {}
        for shell in shells:
            threading.Thread(target=_close, args=(shell,), name="shell", daemon=True).start()

    def _known(self, name: str) -> Shell:
        with self._lock:
            shell = self._by_id.get(name)
        if shell is None:
            raise Refused(404, "unknown_execution", f"no shell {name}")
        return shell


def execution_id(name: str) -> str:
    """Under which a shell itself stands among the executions: killed like any other."""
    return f"shell/{name}"


def _close(shell: Shell) -> None:
    shell.execution.wait(CLOSED_WAIT_S)
    with shell.turn:
        shell.close()
