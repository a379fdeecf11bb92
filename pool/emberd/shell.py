"""A shell that lives on between commands: what one of them sets, the next one finds.

The shell runs a loop of its own: it waits for a byte, sources the text that emberd has put into a file without a name,
and tells the exit status, each by a descriptor of its own (6 to 9). So nothing that a command prints can be
taken for an end, and no text of a command needs quoting.
"""

import os
import select
import signal
import threading
import time
from typing import Any, Dict, Optional

from emberpool.pool.emberd import channel
from emberpool.pool.emberd.capture import Capture
from emberpool.pool.emberd.exec_request import Request
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.room import Room

# The text is sourced, and not from a function, in which `declare` would make variables that end with it. `command`
# keeps a syntax error from ending the shell; a redirection of a builtin lasts as long as the builtin, so commands and
# their children do not see 8 and 9. The trap is how a time limit gets out of the text. It is set only while a text is
# sourced, in a file of its own: an interrupt may come a moment too late, and a `return` too many leaves just that file,
# with no status yet: then it is that of the interrupt.
SOURCE = b"""trap 'return 124' USR1
command . /proc/self/fd/7 8<&- 9>&-
emberd_status=$?
trap '' USR1
"""
LOOP = """while { read -r emberd_status <&8; } 2>/dev/null; do
command . /proc/self/fd/6
{ trap '' USR1; echo "${emberd_status:-124}" >&9; } 2>/dev/null
done
"""
INTERRUPT_S = 0.02
"""Between two interrupts of a text: the next one meets whatever the shell has begun since."""
GRACE_S = 1.0
"""How long a shell may take to come back from an interrupt before it is killed."""
END_S = 5.0
"""How long the end of a shell that says no more is waited for."""
LOOK_S = 0.1
"""How soon a kill, or the shell's own end, is noticed."""


class Shell:
    """One shell and its descriptors. Its commands run one after the other, in the order in which they came."""

    def __init__(self, request: Request, room: Room) -> None:
        """Raises RoomError if the room is gone."""
        self.turn = threading.Lock()
        self._text = os.memfd_create("text", os.MFD_CLOEXEC)
        source = os.memfd_create("source", os.MFD_CLOEXEC)
        os.write(source, SOURCE)
        read_go, go = os.pipe2(os.O_CLOEXEC)
        self.status, write_status = os.pipe2(os.O_CLOEXEC)
        try:
            extra = (source, self._text, read_go, write_status, go)
            self.execution = Execution(request._replace(extra=extra, unlimited=True), room)
        except Exception:
            self.close()
            raise
        finally:
            for fd in (source, read_go, write_status, go):
                os.close(fd)

    @property
    def ended(self) -> bool:
        """Whether the shell itself is gone."""
        return not self.execution.running

    def begin(self, text: str) -> None:
        """Have it source a text."""
        os.ftruncate(self._text, 0)
        data = memoryview(channel.encoded(text) + b"\n")
        done = 0
        while done < len(data):
            done += os.pwrite(self._text, data[done:], done)
        self.execution.tell({"do": "go"})

    def interrupt(self) -> None:
        """Get it out of the text: kill what the text has started, and have the shell return."""
        self.execution.tell({"do": "interrupt", "signal": int(signal.SIGUSR1)})

    def close(self) -> None:
        """Let go of the descriptors of a shell that has ended."""
        for name in ("_text", "status"):
            fd = getattr(self, name, -1)
            if fd >= 0:
                os.close(fd)
            setattr(self, name, -1)


class ShellCommand(Execution):
    """One text in a shell: read, waited for and killed like any other execution."""

    def __init__(self, request: Request, text: str, shell: Shell) -> None:
        self._begin(request)
        self._shell, self._text, self._never_began = shell, text, False
        self.changed = shell.execution.changed
        threading.Thread(target=self._run, name="shell", daemon=True).start()

    def kill(self, reason: str) -> None:
        """Interrupt it, or keep it from starting. `reason` becomes the outcome if no end came first."""
        with self.changed:
            if self.result is None and self._reason is None:
                self._reason = reason

    def _run(self) -> None:
        shell = self._shell
        with shell.turn:
            self.started = time.monotonic()
            if shell.ended or self._reason is not None:
                self._never_began = True
                self._finish(None)
                return
            shell.execution.divert(self.stdout, self.stderr)
            try:
                shell.begin(self._text)
                told = self._status_of(shell)
            except OSError:
                told = None  # the shell has ended just now
            shell.execution.take_what_is_there()
            self._finish(told)
            shell.execution.divert(Capture(0), Capture(0))
            if shell.ended:
                shell.close()

    def _status_of(self, shell: Shell) -> Optional[int]:
        """What the shell tells of the text; None if it ended instead."""
        deadline, interrupted = self.started + self.request.time_limit_s, 0.0
        while True:
            now = time.monotonic()
            if now >= deadline and self._reason is None:
                self.kill("timed_out")
            wait_s = min(LOOK_S, max(0.0, deadline - now))
            if self._reason is not None:
                wait_s, interrupted = INTERRUPT_S, interrupted or now
                if now - interrupted > GRACE_S:
                    shell.execution.kill(self._reason)
                else:
                    shell.interrupt()
            if select.select([shell.status], [], [], wait_s)[0]:
                told = os.read(shell.status, 64)
                return int(told) if told.strip().isdigit() else None
            if shell.ended:
                return None

    def _finish(self, told: Optional[int]) -> None:
        shell = self._shell.execution
        if told is not None:
            end = {"outcome": "exited", "exit_code": told, "signal": None, "survivors": False, "shell": "alive"}
        else:
            wait_s = 0.0 if self._never_began else END_S  # the shell may live on then
            last: Dict[str, Any] = shell.wait(wait_s) or {"outcome": "signaled", "signal": 9}
            end = {name: last.get(name) for name in ("outcome", "exit_code", "signal")}
            end.update(
                survivors=bool(last.get("survivors")), shell="exited" if last["outcome"] == "exited" else "killed"
            )
        if self._reason is not None:
            end.update(outcome=self._reason, exit_code=None, signal=None)
            if self._shell.ended is False:
                end["shell"] = "alive"
        with self.changed:
            self.result = {**end, **self._output()}
            self.stdout, self.stderr = Capture(0), Capture(0)
            self.changed.notify_all()

    def _output(self) -> Dict[str, Any]:
        return {
            "stdout": self.stdout.kept(),
            "stderr": self.stderr.kept(),
            "stdout_bytes": self.stdout.total,
            "stderr_bytes": self.stderr.total,
            "truncated": self.stdout.truncated or self.stderr.truncated,
            "duration_s": round(self.elapsed_s, 6),
        }
