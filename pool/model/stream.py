"""The output of a command that runs or has run, read from an offset on."""

from pydantic import Field

from emberpool.pool.model.command import Outcome
from emberpool.pool.model.frozen import Bytes, Frozen

MAX_PIECE = 512 * 1024
"""Most bytes of one stream in one answer: both, in base64, are 1.4 MiB and fit one payload."""


class Cursor(Frozen):
    """How many bytes of each stream were read."""

    stdout: int = Field(default=0, ge=0)
    stderr: int = Field(default=0, ge=0)


class Piece(Frozen):
    """Some bytes of one stream."""

    offset: int = 0
    """Where `data` begins in the whole stream."""
    data: Bytes = b""
    missed: int = 0
    """Bytes between the cursor and `offset` that are kept no more: the reader was too slow for the output limit."""
    total: int = 0
    """Bytes written so far."""

    @property
    def end(self) -> int:
        """The offset after `data`."""
        return self.offset + len(self.data)


class OutputRead(Frozen):
    """What a read of a command's output found."""

    running: bool = True
    elapsed_s: float = 0.0
    stdout: Piece = Piece()
    stderr: Piece = Piece()
    outcome: Outcome | None = None
    """Once it has ended; from its wait status, never from the end of its output."""
    exit_code: int | None = None
    signal: int | None = None
    survivors: bool = False

    @property
    def cursor(self) -> Cursor:
        """Where the next read goes on."""
        return Cursor(stdout=self.stdout.end, stderr=self.stderr.end)

    @property
    def complete(self) -> bool:
        """Whether the command has ended and all that is kept of its output was read."""
        return not self.running and self.stdout.end >= self.stdout.total and self.stderr.end >= self.stderr.total
