"""Background processes of a sandbox: started once, looked at and steered by id, ended with the lease."""

from emberpool.pool.model.frozen import Bytes, Frozen
from emberpool.pool.model.ids import ExecutionId

MAX_INPUT = 1024 * 1024
"""Most bytes of stdin in one call."""


def process_execution(process_id: str) -> ExecutionId:
    """The execution that a background process is; unique within its lease."""
    return ExecutionId(f"process/{process_id}")


class ProcessLine(Frozen):
    """One process of a list."""

    id: str
    running: bool
    elapsed_s: float = 0.0
    command: str = ""
    """Its first 200 characters."""


class InputState(Frozen):
    """What became of bytes for stdin."""

    accepted: int = 0
    """Bytes of the whole input taken so far: where the next ones begin."""
    open: bool = False
    """Whether more can follow."""


class InputPiece(Frozen):
    """Bytes of stdin from an offset on: repeated, they are written once."""

    data: Bytes = b""
    offset: int = 0
    end: bool = False
    """Close stdin after them."""
