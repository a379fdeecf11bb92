"""The activities on a shell that lives on between commands."""

import asyncio
import logging

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.calls import OpenCall
from emberpool.activities.errors import translated
from emberpool.activities.execution import execution_id
from emberpool.activities.models import CallOutput, Progress
from emberpool.activities.on_pod_calls import SHORT_S, answered
from emberpool.activities.pools import Pools
from emberpool.activities.process_models import OpenShellInput, RunInShellInput, RunInShellOutput
from emberpool.pool.client import answers, shells
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.shell import ShellResult

log = logging.getLogger(__name__)


class ShellCalls:
    """Open a shell, and run texts in it."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    @activity.defn(name=names.OPEN_SHELL)
    async def open_shell(self, call: OpenShellInput) -> CallOutput:
        """Start a shell, unless this id was started before."""

        async def open_(on: OpenCall) -> bool:
            return await shells.open_shell(
                on.pool.client, on.pod, on.proof, call.shell_id, program=call.program, env=dict(call.env), cwd=call.cwd
            )

        with translated():
            return await answered(self._pools, call, SHORT_S, open_, CallOutput, lambda _: {})

    @activity.defn(name=names.RUN_IN_SHELL)
    async def run_in_shell(self, call: RunInShellInput) -> RunInShellOutput:
        """Run a text in a shell, or find the run that an earlier attempt began. A cancellation interrupts it."""
        current: list[OpenCall] = []
        progress = Progress(elapsed_s=0, tail="")

        def on_progress(now: answers.Progress) -> None:
            nonlocal progress
            progress = Progress(elapsed_s=now.elapsed_s, tail=now.tail)

        async def run(on: OpenCall) -> ShellResult:
            current[:] = [on]
            result = await shells.run_in_shell(
                on.pool.client,
                on.pod,
                on.proof,
                call.shell_id,
                execution_id(),
                call.text,
                time_limit_s=call.time_limit_s,
                output_limit=call.output_limit,
                poll_s=self._pools.heartbeat_s,
                on_progress=on_progress,
            )
            on.ran_s = result.duration_s
            return result

        with translated():
            try:
                return await answered(
                    self._pools,
                    call,
                    call.time_limit_s,
                    run,
                    RunInShellOutput,
                    lambda result: {"result": result},
                    lambda: progress,
                )
            except asyncio.CancelledError:
                await asyncio.shield(_interrupt(current))
                raise


async def _interrupt(current: list[OpenCall]) -> None:
    """If the caller asked for the end; a worker that stops leaves the text running for the next attempt."""
    details = activity.cancellation_details()
    if details is None or not details.cancel_requested or not current:
        return
    on = current[0]
    try:
        await on.pool.client.kill(on.pod, on.proof, execution_id())
    except EmberpoolError as error:
        log.warning("pod %s: a cancelled command of a shell could not be interrupted: %s", on.pod.name, error)
