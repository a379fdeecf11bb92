"""Shells that live on between commands."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from emberpool.pool.client.answers import LeaseProof, Progress, command_result, to_progress
from emberpool.pool.client.emberd_client import OVERTIME_S, REATTACH_TRIES, EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodRefused, PodUnreachable, ShellOver
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.shell import ShellResult


async def open_shell(
    client: EmberdClient,
    pod: PodAddress,
    proof: LeaseProof,
    shell_id: str,
    *,
    program: str = "/bin/sh",
    env: dict[str, str] | None = None,
    cwd: str | None = None,
) -> bool:
    """Start a shell, unless this id was started before; whether it lives."""
    body = {"id": shell_id, "shell": program, "env": env or {}, "cwd": cwd}
    return bool((await client.ask(pod, proof, "/v1/shell", body))["running"])


async def run_in_shell(
    client: EmberdClient,
    pod: PodAddress,
    proof: LeaseProof,
    shell_id: str,
    execution_id: ExecutionId,
    text: str,
    *,
    time_limit_s: float,
    output_limit: int,
    poll_s: float = 5.0,
    on_progress: Callable[[Progress], None] | None = None,
) -> ShellResult:
    """Run a text, or join the one of this id, and wait for its end; `on_progress` is called about every `poll_s`.

    Raises:
        ShellOver: the shell had ended before; the text did not run.
        PodUnreachable: with `sent` True if the text may have run.
    """
    begin = f"/v1/shell/{quote(shell_id, safe='')}/run"
    body: dict[str, Any] = {"id": execution_id, "text": text, "time_limit_s": time_limit_s}
    body |= {"output_limit": output_limit, "wait_s": poll_s}
    wait, later = f"/v1/exec/{quote(execution_id, safe='')}/wait", {"wait_s": poll_s}
    loop = asyncio.get_running_loop()
    lost, known, give_up = 0, False, loop.time() + time_limit_s + OVERTIME_S
    while True:
        try:
            answer = await client.ask(pod, proof, wait if known else begin, later if known else body, poll_s)
        except PodUnreachable:
            lost += 1
            if lost > REATTACH_TRIES or loop.time() > give_up:
                raise
            await asyncio.sleep(min(2.0, 0.05 * 2**lost))
            continue
        except PodRefused as error:
            raise _over(shell_id, error) from error
        lost, known = 0, True
        if on_progress is not None and answer["running"]:
            on_progress(to_progress(answer))
        if not answer["running"]:
            result = command_result(answer, time_limit_s)
            return ShellResult(**result.model_dump(), shell=answer["shell"])


def _over(shell_id: str, error: PodRefused) -> ShellOver | PodRefused:
    if error.word != "shell_over":
        return error
    _, code, _ = error.detail.split(":")
    return ShellOver(shell_id, None if code == "None" else int(code))
