"""Reading the output of a running or ended execution from a cursor on."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

from emberpool.pool.client.answers import LeaseProof
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodUnreachable
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.stream import MAX_PIECE, Cursor, OutputRead, Piece

FOLLOW_TRIES = 6
"""Lost connections in a row before following gives up."""
POLL_S = 5.0


async def read_output(
    client: EmberdClient,
    pod: PodAddress,
    proof: LeaseProof,
    execution_id: ExecutionId,
    cursor: Cursor,
    *,
    wait_s: float = 0.0,
    limit: int = MAX_PIECE,
) -> OutputRead:
    """What is kept of both streams from `cursor` on, after at most `wait_s` if there is nothing new.

    Raises:
        PodRefused: `unknown_execution`: it was not started yet, or never.
    """
    target = f"/v1/exec/{quote(execution_id, safe='')}/read"
    body = {"stdout": cursor.stdout, "stderr": cursor.stderr, "wait_s": wait_s, "limit": limit}
    answer = await client.ask(pod, proof, target, body, wait_s)
    return OutputRead(
        running=answer["running"],
        elapsed_s=answer["elapsed_s"],
        stdout=_piece(answer["stdout"], cursor.stdout),
        stderr=_piece(answer["stderr"], cursor.stderr),
        outcome=answer["outcome"],
        exit_code=answer["exit_code"],
        signal=answer["signal"],
        survivors=answer["survivors"],
    )


async def follow(
    client: EmberdClient, pod: PodAddress, proof: LeaseProof, execution_id: ExecutionId, cursor: Cursor | None = None
) -> AsyncGenerator[OutputRead]:
    """Every piece from `cursor` to the end, nothing twice; the last one is `complete`. Lost connections are made anew.

    Raises:
        PodUnreachable: the pod did not answer `FOLLOW_TRIES` times in a row: how the command ended is not known.
    """
    at, lost = cursor or Cursor(), 0
    while True:
        try:
            seen = await read_output(client, pod, proof, execution_id, at, wait_s=POLL_S)
        except PodUnreachable:
            lost += 1
            if lost > FOLLOW_TRIES:
                raise
            await asyncio.sleep(min(2.0, 0.05 * 2**lost))
            continue
        at, lost = seen.cursor, 0
        yield seen
        if seen.complete:
            return


def _piece(told: dict[str, Any], asked: int) -> Piece:
    return Piece(
        offset=told["offset"],
        data=base64.b64decode(told["data"]),
        missed=max(0, told["offset"] - asked),
        total=told["total"],
    )
