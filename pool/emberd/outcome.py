"""How an execution ended, as it is told: outcome, exit code, signal, and what it printed."""

import os
import signal
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

if TYPE_CHECKING:
    from emberpool.pool.emberd.execution import Execution

TOO_MANY_TASKS = "too_many_tasks"
"""Reason of a kill, never told as an outcome."""


def result_of(execution: "Execution", status: Optional[int], reason: Optional[str], survivors: bool) -> Dict[str, Any]:
    """The result of an execution that is over. The caller holds its lock.

    `status`: the wait status, if there is one; `reason`: why we killed it, if we did.
    """
    outcome, code, number = _end(execution, status, reason)
    stdout, stderr, spills = execution.stdout, execution.stderr, execution.spills
    return {
        "outcome": outcome,
        "exit_code": code,
        "signal": number,
        "stdout": stdout.kept(),
        "stderr": stderr.kept(),
        "stdout_bytes": stdout.total,
        "stderr_bytes": stderr.total,
        "truncated": stdout.truncated or stderr.truncated,
        "stdout_spilled": spills["stdout"].size if "stdout" in spills else 0,
        "stderr_spilled": spills["stderr"].size if "stderr" in spills else 0,
        "survivors": survivors,
        "duration_s": round(execution.elapsed_s, 6),
    }


def output_in(result: Dict[str, Any]) -> int:
    """Bytes of output that a result holds."""
    return len(result["stdout"]) + len(result["stderr"])


def leave_out(result: Dict[str, Any]) -> int:
    """Drop the output from a result, which says so then; the bytes freed. The caller holds the execution's lock."""
    freed = output_in(result)
    for name in ("stdout", "stderr"):
        if result[name]:
            result[name] = b"\n[... %d bytes left out ...]\n" % result[name + "_bytes"]
            result["truncated"] = True
    return freed


def _end(
    execution: "Execution", status: Optional[int], reason: Optional[str]
) -> Tuple[str, Optional[int], Optional[int]]:
    """From the wait status, and from whether we were the ones who killed it."""
    if status is not None and os.WIFEXITED(status):
        return "exited", os.WEXITSTATUS(status), None
    if reason == TOO_MANY_TASKS:
        # No outcome of its own: workers know a command's end by SIGKILL, whichever version they are of.
        told = execution.stderr if execution.request.tty is None else execution.stdout
        told.add(b"emberd: killed: the jobs of this sandbox had more processes and threads than its limit allows\n")
        return "signaled", None, int(signal.SIGKILL)
    if reason is not None:
        return reason, None, int(signal.SIGKILL)
    if status is not None:
        return "signaled", None, os.WTERMSIG(status)
    # No wait status: the room was out of processes before it began, or a job killed its own keeper.
    if not execution.began:
        execution.stderr.add(b"emberd: cannot start a process: Resource temporarily unavailable\n")
        return "exited", 126, None
    return "signaled", None, int(signal.SIGKILL)
