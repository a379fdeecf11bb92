"""One command, from its start to the end of its whole tree, looked after by one thread at a time.

Of a short one that is whoever waits for it: no other thread has to be started, woken and waited for.
"""

import math
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, Optional

from emberpool.pool.emberd import channel, follow, streams, terminal, tree
from emberpool.pool.emberd.capture import Capture
from emberpool.pool.emberd.care import Care
from emberpool.pool.emberd.ends import Loop
from emberpool.pool.emberd.exec_request import Request
from emberpool.pool.emberd.feed import Input
from emberpool.pool.emberd.outcome import leave_out, output_in, result_of
from emberpool.pool.emberd.refusal import Refused
from emberpool.pool.emberd.room import Room, RoomError
from emberpool.pool.emberd.shims import Shim
from emberpool.pool.emberd.spill import Spill, SpillFolder

RESTOCK_S = 0.005
"""A command that has run for so long has started."""
DRAIN_S = 0.1
"""How long output is still read after the foreground ended while others hold the pipe."""
AFTER_KILL_S = 3.0
"""How long a killed tree may take to end before the result is given without its wait status."""
_PIECE, _PIPE_HOLDS = 65536, 1024 * 1024
"""Bytes of one read; the most that a pipe of an ordinary user can be made to hold."""


class Execution:
    """Started by its constructor. `wait` and `kill` may be called from any thread."""

    def __init__(
        self,
        request: Request,
        room: Room,
        spills: Optional[SpillFolder] = None,
        watch: Optional[Callable[[], None]] = None,
    ) -> None:
        """With `watch` the caller goes on to `wait`, then to `settle`, whatever comes. It is called once the command
        has run for some milliseconds, or has left processes behind.

        Raises:
            RoomError: the room is gone.
        """
        self._begin(request, spills)
        self._room, self._restocked, self._watch = room, False, watch or (lambda: None)
        self._open()
        # A lease may have very many executions; the input lies in line now, and the shim has the rest.
        self.request = request._replace(stdin=b"", env={}, argv=[])
        self.care = Care(self._look_after, free=watch is not None)
        if watch is None:
            self.care.hand_over()

    def _begin(self, request: Request, spills: Optional[SpillFolder] = None) -> None:
        self.request = request
        self.started = time.monotonic()
        self.pid: Optional[int] = None
        """The shim's, while anything of the tree may live."""
        self.changed = threading.Condition()
        """Notified at every piece of output and at the end."""
        self._reason: Optional[str] = None
        self.result: Optional[Dict[str, Any]] = None
        """Once it has ended."""
        self._status: Optional[int] = None
        self._left = True
        self.stdout, self.stderr = Capture(request.output_limit, spills), Capture(request.output_limit, spills)
        self.spills: Dict[str, Spill] = {}
        """Of an ended execution."""
        self._spills_dropped = False
        self.began = False
        """Whether there was a process for it."""
        self.care = Care(self._look_after, free=False)
        self._unsettled = self._killed = self._struck = False
        """`_killed`: for its time limit; `_struck`: something ends its tree, shim and all, now or did."""
        self.forgotten = False
        """Whether the output of this ended execution was dropped."""
        self._input = Input(request.stdin, request.stdin_open, request.tty is not None)
        self._stdin = self._stdout = self._stderr = -1
        self._sock: Optional[socket.socket] = None

    def wait(self, wait_s: float) -> Optional[Dict[str, Any]]:
        """The result as soon as there is one; None if there is none after `wait_s` seconds."""
        until = time.monotonic() + wait_s
        if self.result is None and self.care.take():
            self._attend(until)
        with self.changed:
            self.changed.wait_for(lambda: self.result is not None, max(0.0, until - time.monotonic()))
            return self.result

    def settle(self) -> None:
        """Once the end was told: what nobody needs to wait for. Idempotent; may be called at any time."""
        with self.changed:
            mine, self._unsettled = self._unsettled, False
        if not mine:
            return
        try:
            self._restock()
        finally:
            if self._left or self._loop.output_open:
                self._watch()
                self.care.hand_over()
            else:
                self._let_go()

    def look_after_again(self) -> None:
        """If it lacks a thread: end it if its time is over, and try to have one."""
        if self.care.take_back():
            limited = self.result is None and not (self.request.unlimited or self._killed)
            if limited and time.monotonic() >= self._deadline:
                self._end_for_time()
            self.care.hand_over()

    def lease_ended(self) -> None:
        """Let go of what nobody can ask for any more."""
        self.drop_spills()
        if self.care.take_back():
            self._let_go()

    def kill(self, reason: str) -> None:
        """End the whole tree, also of an ended foreground. `reason` becomes the outcome if no end came first."""
        with self.changed:
            if self.result is None and self._reason is None:
                self._reason = reason
            pid = self.pid
            self._struck |= pid is not None
        if pid is not None:
            self.tell({"do": "end"})  # for a shim that has not begun: it has nothing below it, and begins all the same
            tree.end_below([pid])

    def read(self, offsets: Dict[str, int], limit: int, wait_s: float) -> Dict[str, Any]:
        """What is kept of both streams from `offsets` on, as soon as there is anything new or an end."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.result or any(self.capture(name).total > at for name, at in offsets.items()), wait_s
            )
            window = follow.of_ended if self.result is not None else follow.of_running
            streams = {name: window(self, name, offset, limit) for name, offset in offsets.items()}
            return dict(streams, result=self.result)

    def capture(self, name: str) -> Capture:
        """Of a stream, while it runs."""
        return self.stdout if name == "stdout" else self.stderr

    def divert(self, stdout: Capture, stderr: Capture) -> None:
        """Keep the output from now on elsewhere."""
        with self.changed:
            self.stdout, self.stderr = stdout, stderr

    def write(self, data: bytes, offset: int, end: bool, wait_s: float) -> Dict[str, Any]:
        """Put bytes of stdin in line; see `Input.add`."""
        return self._input.add(data, offset, end, wait_s)

    def tell(self, message: channel.Message) -> bool:
        """Have the shim do something to the command; False if that has ended, or a job keeps the shim from it."""
        with self.changed, suppress(channel.Closed, OSError):
            if self.result is None and self.pid is not None and self._sock is not None:
                return channel.send_now(self._sock, channel.packed(message))
        return False

    def resize(self, rows: int, cols: int) -> bool:
        """Tell the terminal its size; False if there is none (any more)."""
        with self.changed:
            if self.request.tty is None or self._stdout < 0:
                return False
            terminal.resize(self._stdout, rows, cols)
            return True

    @property
    def running(self) -> bool:
        """Whether the foreground has not ended."""
        return self.result is None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def kept_bytes(self) -> int:
        """Output that an ended execution holds in memory."""
        return output_in(self.result) if self.result is not None else 0

    def forget_output(self) -> int:
        """Drop the output of an ended execution and say so in its result; returns the bytes freed."""
        with self.changed:
            result = self.result
            if result is None:
                return 0
            self.forgotten = True
            return leave_out(result)

    def whole_output(self, stream: str, offset: int) -> Iterator[bytes]:
        """All of one stream that was kept, from `offset` on. Raises Refused: it runs, or its output was dropped."""
        with self.changed:
            result, spill = self.result, self.spills.get(stream)
        if result is None:
            raise Refused(422, "file_refused", "the command has not ended: wait for it first")
        return follow.whole(result, spill, stream, offset)

    def drop_spills(self) -> None:
        """Give their disk back; the result says that nothing is left."""
        with self.changed:
            self._spills_dropped = True
            spills, self.spills = list(self.spills.values()), {}
            for name in ("stdout", "stderr"):
                if self.result is not None:
                    self.result[name + "_spilled"] = 0
        for spill in spills:
            spill.close()

    def _open(self) -> None:
        of_command, self._stdin, self._stdout, self._stderr = streams.opened(self.request)
        try:
            shim = self._room.shims.take()
            shim.run(self.request.for_shim(), [*of_command, *self.request.extra])
            self._sock, self.pid, self.began = shim.sock, shim.pid, shim.pid is not None
            self._loop = Loop(self._stdin, self._input, self._stdout, self._stderr, self._sock)
            self._deadline = self.started + self.request.time_limit_s
        except Exception:
            self._close_all()
            raise
        finally:
            for fd in set(of_command):
                os.close(fd)

    def _attend(self, until: float) -> None:
        """Look after it until its end was told, or `until` or its time limit has come: then another thread does."""
        over = False
        try:
            over = self._until_end(until)
            if over:
                self._unsettled = True
                if self._left:
                    self._watch()
                self._publish()
        finally:
            if not over:
                self._watch()
                self.care.hand_over()

    def _look_after(self) -> None:
        try:
            self._until_end(None)
            self._publish()
            self._restock()
            self._input.close()
            self._loop.end_input()
            while self._loop.open_count:  # survivors may write on: never let them block on a full pipe
                self._step(math.inf)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self.changed:
            self.pid = None
        self._close_all()
        self._publish()

    def _until_end(self, until: Optional[float]) -> bool:
        """Until it has ended. False if it has not, and `until` is given and has come, or it must be killed."""
        while self._status is None and self._loop.tree_lives:
            now = time.monotonic()
            left = math.inf if self.request.unlimited else self._deadline - now
            if until is not None and (until <= now or (left <= 0 and not self._killed)):
                return False
            if not self._restocked and now - self.started >= RESTOCK_S:
                self._restock()
                self._watch()
            if left > 0:
                soon = math.inf if self._restocked else RESTOCK_S
                self._step(min(left, soon, math.inf if until is None else until - now))
            elif self._killed:
                break  # it does not die: a result without a wait status is better than none
            else:
                self._end_for_time()
        self._drain()
        return True

    def _end_for_time(self) -> None:
        self.kill("timed_out")
        self._deadline, self._killed = time.monotonic() + AFTER_KILL_S, True

    def _restock(self) -> None:
        """Have the next command's shim made, but not while this one's start needs the processor."""
        if not self._restocked:
            self._restocked = True
            try:
                self._room.shims.make_ready()
            except RoomError:
                return  # the room is gone, and with it the lease

    def _drain(self) -> None:
        """Read what is left. A killed tree is awaited to its last process; survivors of an end by itself are not."""
        deadline = time.monotonic() + (DRAIN_S if self._reason is None else AFTER_KILL_S)
        loop = self._loop
        while loop.output_open or (loop.tree_lives and self._reason is not None):
            left = deadline - time.monotonic()
            if left <= 0 or (not self._step(left) and not loop.tree_lives):
                return

    def _step(self, wait_s: float) -> bool:
        """Handle what is ready within `wait_s`; False if nothing was."""
        loop = self._loop
        events = loop.ready(wait_s)
        for name in events:
            if name == "status":
                self._take_status(loop)
            elif name == "wake":
                loop.want_input()
            elif name == "stdin":
                if loop.feed():
                    os.close(self._stdin)  # the command reads end-of-file now
                    self._stdin = -1
            elif self._take(name) == b"":
                loop.drop(name)
        return bool(events)

    def _take(self, name: str) -> Optional[bytes]:
        """Read and keep what is there of a stream; None if nothing is, empty at its end."""
        with self.changed:
            try:
                data = os.read(self._stdout if name == "stdout" else self._stderr, _PIECE)
            except BlockingIOError:
                return None
            except OSError:
                return b""  # a terminal that nobody has open any more
            self.capture(name).add(data)
            self.changed.notify_all()
            return data

    def take_what_is_there(self) -> None:
        """Read all that was written before this call, for whom the loop's own pace is not enough."""
        for name in ("stdout", "stderr"):
            for _ in range(_PIPE_HOLDS // _PIECE + 1):
                if not self._take(name):
                    break

    def _take_status(self, loop: Loop) -> None:
        try:
            assert self._sock is not None
            self._status, self._left = channel.receive_end(self._sock)
            if not self._left:
                loop.drop("status")
        except channel.Closed:
            loop.drop("status")
            self._left = False
            self.pid = None

    def _publish(self) -> None:
        with self.changed:
            if self.result is None:
                self._keep_spills()
                self.result = result_of(self, self._status, self._reason, self._left)
                self._free_shim()
                self.stdout, self.stderr = Capture(0), Capture(0)
                self.changed.notify_all()

    def _free_shim(self) -> None:
        """Let the next command have it, if nothing of this one is left. The caller holds the lock."""
        if self._sock is not None and self.pid is not None and self.request.shim_may_stay:
            if not (self._left or self._struck):
                self._room.shims.give_back(Shim(self._sock, self.pid))
                self._sock, self.pid = None, None

    def _keep_spills(self) -> None:
        for name, capture in (("stdout", self.stdout), ("stderr", self.stderr)):
            if capture.spill is not None and self._spills_dropped:
                capture.spill.close()  # the lease ended first
            elif capture.spill is not None:
                self.spills[name] = capture.spill

    def _close_all(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._input.close()
        with self.changed:
            for name in ("_stdin", "_stdout", "_stderr"):
                fd = getattr(self, name)
                if fd >= 0:
                    os.close(fd)
                setattr(self, name, -1)
