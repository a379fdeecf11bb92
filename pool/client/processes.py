"""Starting background processes and steering executions that run."""

import asyncio
import base64
from urllib.parse import quote

from emberpool.pool.client.answers import LeaseProof, command_result
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.process import InputPiece, InputState, ProcessLine


async def start_process(
    client: EmberdClient,
    pod: PodAddress,
    proof: LeaseProof,
    execution_id: ExecutionId,
    command: Command,
    *,
    stdin_open: bool = False,
    time_limited: bool = False,
) -> bool:
    """Start it, unless this id was started before, and return at once: whether it runs."""
    body = command.model_dump(mode="json", exclude={"replay_safe"})
    body |= {"id": execution_id, "wait_s": 0, "stdin_open": stdin_open, "background": not time_limited}
    return bool((await client.ask(pod, proof, "/v1/exec", body))["running"])


async def list_processes(client: EmberdClient, pod: PodAddress, proof: LeaseProof) -> list[ProcessLine]:
    """All executions of the lease, oldest first."""
    answer = await client.get_json(pod, proof, "/v1/exec")
    return [ProcessLine.model_validate(line) for line in answer["executions"]]


async def send_signal(
    client: EmberdClient, pod: PodAddress, proof: LeaseProof, execution_id: ExecutionId, number: int
) -> bool:
    """Send a signal to its process group; False if it has ended, or a job keeps its keeper from being told."""
    return bool((await client.ask(pod, proof, _target(execution_id, "signal"), {"signal": number}))["sent"])


async def write_stdin(
    client: EmberdClient,
    pod: PodAddress,
    proof: LeaseProof,
    execution_id: ExecutionId,
    piece: InputPiece,
    *,
    wait_s: float = 10.0,
) -> InputState:
    """Write bytes of stdin; how many were taken. A command that does not read takes 1 MiB and no more."""
    data = base64.b64encode(piece.data).decode("ascii")
    body = {"data": data, "offset": piece.offset, "end": piece.end, "wait_s": wait_s}
    return InputState.model_validate(await client.ask(pod, proof, _target(execution_id, "stdin"), body, wait_s))


async def resize_terminal(
    client: EmberdClient, pod: PodAddress, proof: LeaseProof, execution_id: ExecutionId, rows: int, cols: int
) -> bool:
    """Set the size of its terminal; False if it has none."""
    return bool(
        (await client.ask(pod, proof, _target(execution_id, "resize"), {"rows": rows, "cols": cols}))["resized"]
    )


def _target(execution_id: ExecutionId, call: str) -> str:
    return f"/v1/exec/{quote(execution_id, safe='')}/{call}"


async def await_end(
    client: EmberdClient,
    pod: PodAddress,
    proof: LeaseProof,
    execution_id: ExecutionId,
    wait_s: float,
    *,
    poll_s: float = 5.0,
) -> CommandResult | None:
    """How it ended; None if it still runs after `wait_s`."""
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        left_s = max(0.0, min(poll_s, deadline - asyncio.get_running_loop().time()))
        answer = await client.ask(pod, proof, _target(execution_id, "wait"), {"wait_s": left_s}, left_s)
        if not answer["running"]:
            return command_result(answer, 0.0)
        if left_s < poll_s:
            return None
