"""A shell that lives on between commands, and what became of it."""

from enum import StrEnum

from emberpool.pool.model.command import CommandResult


class ShellState(StrEnum):
    """Whether the next command finds the shell."""

    ALIVE = "alive"
    """Everything that was set before is there."""
    EXITED = "exited"
    """It ended by itself: `exit`, or `set -e` and a failing command."""
    KILLED = "killed"
    """It was killed: it did not come back from an interrupt, or went over the memory limit."""


class ShellResult(CommandResult):
    """A command's end in a shell."""

    shell: ShellState = ShellState.ALIVE
    """What became of the shell."""
