"""What a model reads of a command: one text with its output and how it ended."""

from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.errors import InvalidInput, SandboxFileError

SHOWN_LIMIT = 16 * 1024
"""Bytes per stream that a tool for agents keeps: all that a model would read."""


def shown(result: CommandResult) -> str:
    """stdout, then stderr, then a line that says how the command ended, unless it simply succeeded."""
    parts = [result.text.rstrip("\n")]
    if result.stderr:
        parts.append(f"[stderr]\n{result.error_text.rstrip()}")
    if not result.ok:
        parts.append(f"[{_end(result)}]")
    elif not result.stdout and not result.stderr:
        parts.append("[exit status 0, no output]")
    return "\n".join(part for part in parts if part)


def shown_file(path: str, data: bytes) -> str:
    """A file's text, or what it is if it is none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"[{path} is no text: {len(data)} bytes]"


def shown_error(error: SandboxFileError | InvalidInput) -> str:
    """An error that a model may read, correct and go on."""
    return f"[error: {error}]"


def _end(result: CommandResult) -> str:
    match result.outcome:
        case Outcome.EXITED:
            return f"exit status {result.exit_code}"
        case Outcome.SIGNALED:
            return f"killed by signal {result.signal}"
        case Outcome.TIMED_OUT:
            return f"killed after its time limit of {result.time_limit_s:g} s"
        case Outcome.OOM_KILLED:
            return "killed: it used more memory than it may"
        case Outcome.DISK_FULL:
            return "killed: the sandbox's files take more disk than they may"
        case Outcome.CANCELLED:
            return "cancelled"
