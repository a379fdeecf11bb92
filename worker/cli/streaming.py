"""`emberpool run`'s output: what the command writes is written here, byte for byte, as it comes."""

import asyncio
import sys
from typing import Any, TextIO

from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from emberpool.activities import names
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.session import SessionWhere
from emberpool.pool.model.stream import Cursor, Piece, rest_of
from emberpool.worker.remote.following import follow

FIRST_S = 0.3
"""A command that ends sooner costs no further call."""


async def stream_to(client: Client, handle: WorkflowHandle[Any, Any], task_queue: str) -> CommandResult:
    """Follow a tool call's command to its end, writing its streams to ours; its result.

    Raises:
        WorkflowFailureError: it has none.
    """
    result: asyncio.Task[CommandResult] = asyncio.ensure_future(handle.result())
    try:
        written = await _follow(client, handle, task_queue, result)
        ended = await result
    finally:
        result.cancel()
    # What the pod was not asked for any more is in the result.
    while True:
        rest = rest_of(ended, written)
        write_piece(sys.stdout, rest.stdout)
        write_piece(sys.stderr, rest.stderr)
        if rest.complete:
            return ended
        written = rest.cursor


async def _follow(
    client: Client, handle: WorkflowHandle[Any, Any], task_queue: str, result: asyncio.Task[CommandResult]
) -> Cursor:
    """Write what comes until the end is near, and return how far it was written."""
    at = Cursor()
    where = SessionWhere()
    while where.ref is None:
        if await _ended(result, FIRST_S) is not None or result.done():
            return at
        try:
            where = await handle.query(names.SESSION_WHERE, result_type=SessionWhere)
        except (RPCError, WorkflowQueryFailedError):
            continue  # no worker answers, or an older one: the result has all of it
    prefix = f"{client.namespace}/{handle.id}/"
    async for piece in follow(client, where, task_queue, lambda: _ended(result, FIRST_S), prefix=prefix):
        write_piece(sys.stdout, piece.stdout)
        write_piece(sys.stderr, piece.stderr)
        at = piece.cursor
    return at


async def _ended(result: asyncio.Task[CommandResult], wait_s: float) -> CommandResult | None:
    await asyncio.wait({result}, timeout=wait_s)
    return result.result() if result.done() else None


def write_piece(stream: TextIO, piece: Piece) -> None:
    """Write it, flushed; a gap before it is told."""
    if piece.missed:
        stream.buffer.write(b"\n[... %d bytes left out ...]\n" % piece.missed)
    if piece.data or piece.missed:
        stream.buffer.write(piece.data)
        stream.flush()
