"""The output of a command that runs or has run, read from an offset on."""

from pydantic import Field

from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.frozen import Bytes, Frozen

LEFT_OUT = b"\n[... %b bytes left out ...]\n"
"""Between the kept halves of a stream over its output limit, as emberd writes it."""
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


def rest_of(result: CommandResult, cursor: Cursor) -> OutputRead:
    """What an ended command's result has of its output from a cursor on."""
    return OutputRead(
        running=False,
        elapsed_s=result.duration_s,
        stdout=_rest(result.stdout, result.stdout_bytes, cursor.stdout),
        stderr=_rest(result.stderr, result.stderr_bytes, cursor.stderr),
        outcome=result.outcome,
        exit_code=result.exit_code,
        signal=result.signal,
        survivors=result.survivors,
    )


def _rest(kept: bytes, total: int, offset: int) -> Piece:
    if len(kept) == total:
        return Piece(offset=offset, data=kept[offset:], total=total)
    head, tail = _halves(kept, total)
    if offset < len(head):
        return Piece(offset=offset, data=head[offset:], total=total)
    start = max(offset, total - len(tail))
    return Piece(offset=start, data=tail[start - (total - len(tail)) :], missed=start - offset, total=total)


def _halves(kept: bytes, total: int) -> tuple[bytes, bytes]:
    """The kept head and tail around the line that says how many bytes were left out."""
    for digits in range(1, 20):
        marker_size = len(LEFT_OUT % b"") + digits
        size = len(kept) - marker_size
        marker = LEFT_OUT % str(total - size).encode()
        if size >= 0 and len(marker) == marker_size and kept[size // 2 :].startswith(marker):
            return kept[: size // 2], kept[size // 2 + marker_size :]
    return b"", b""
