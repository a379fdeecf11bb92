"""The activities on a sandbox: run a command, files, bind, open, detach, adopt."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from temporalio import activity

from emberpool.activities import gang_network, names
from emberpool.activities.calls import OpenCall, call_ended, on_pod
from emberpool.activities.errors import translated
from emberpool.activities.execution import execution_id
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import (
    AdoptInput,
    BindInput,
    CallInput,
    CallOutput,
    Nothing,
    Progress,
    ReadFileInput,
    ReadFileOutput,
    RunInput,
    RunOutput,
    WatchInput,
    WatchOutput,
    WriteFileInput,
)
from emberpool.activities.pools import Pools
from emberpool.activities.sweep import release_if_closed
from emberpool.pool.client import emberd_client
from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.errors import EmberpoolError, SandboxLost

log = logging.getLogger(__name__)

FILE_CALL_S = 60.0
"""What a file call adds to its lease while it runs."""


class SandboxCalls:
    """Activities that run on a claimed pod; the first call of a sandbox claims it."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    @activity.defn(name=names.RUN_COMMAND)
    async def run_command(self, call: RunInput) -> RunOutput:
        """Run one command, or find the one that an earlier attempt started, and return its end."""
        with translated():
            return await self._run(call)

    async def _run(self, call: RunInput) -> RunOutput:
        pool = self._pools.get(call.ref.spec.profile)
        limit_s = min(call.command.time_limit_s, pool.profile.limits.time_limit_s)
        command = call.command.model_copy(update={"time_limit_s": limit_s})
        progress = Progress(elapsed_s=0, tail="")

        def on_progress(now: emberd_client.Progress) -> None:
            nonlocal progress
            progress = Progress(elapsed_s=now.elapsed_s, tail=now.tail)

        current: list[OpenCall] = []

        async def run(open_call: OpenCall) -> CommandResult:
            current[:] = [open_call]
            result = await pool.client.run(
                open_call.pod,
                open_call.proof,
                execution_id(),
                command,
                poll_s=self._pools.heartbeat_s,
                on_progress=on_progress,
            )
            open_call.ran_s = result.duration_s
            pool.metrics.command_ended(result)
            return result

        async with heartbeating(self._pools.heartbeat_s, lambda: progress):
            try:
                answer = await on_pod(pool, call.ref, limit_s, run)
            except asyncio.CancelledError:
                ended = await asyncio.shield(self._on_cancel(call, current))
                if ended is None:
                    raise
                return ended
        return RunOutput(
            step=answer.step,
            lease=answer.lease,
            first_scheduled=answer.first_scheduled,
            searchable=self._pools.searchable,
            result=answer.value,
        )

    async def _on_cancel(self, call: RunInput, current: list[OpenCall]) -> RunOutput | None:
        """Kill the command if the caller asked for it; otherwise leave it running for the next attempt."""
        details = activity.cancellation_details()
        pool = self._pools.get(call.ref.spec.profile)
        if details is not None and details.not_found:
            await release_if_closed(pool, call.ref)
            return None
        if details is None or not details.cancel_requested or not current:
            return None
        open_call = current[0]
        try:
            result = await pool.client.kill(open_call.pod, open_call.proof, execution_id())
        except EmberpoolError as error:
            # An error in place of the cancellation would lose it for good; the lease's end kills what runs on.
            log.warning("pod %s: a cancelled command could not be killed: %s", open_call.pod.name, error)
            return None
        await call_ended(pool, call.ref, open_call.proof.epoch)
        return None if result.outcome is Outcome.CANCELLED else RunOutput(result=result)

    @activity.defn(name=names.OPEN_SANDBOX)
    async def open_sandbox(self, call: CallInput) -> CallOutput:
        """Claim the pod and open it, without a command."""

        async def open_(open_call: OpenCall) -> None:
            await open_call.pool.client.bind(open_call.pod, open_call.proof, {}, ())
            await gang_network.join(open_call.pool, open_call.pod, open_call.proof, call.ref)

        with translated():
            return await self._short(call, open_)

    @activity.defn(name=names.BIND_JOB)
    async def bind_job(self, call: BindInput) -> CallOutput:
        """Bind environment and files for every later command of the sandbox."""

        async def bind(open_call: OpenCall) -> None:
            await open_call.pool.client.bind(open_call.pod, open_call.proof, call.env, call.files)

        with translated():
            return await self._short(call, bind)

    @activity.defn(name=names.WRITE_FILE)
    async def write_file(self, call: WriteFileInput) -> CallOutput:
        """Write one file atomically."""

        async def write(open_call: OpenCall) -> None:
            await open_call.pool.client.write_file(open_call.pod, open_call.proof, call.path, call.data, call.mode)

        with translated():
            return await self._short(call, write)

    @activity.defn(name=names.READ_FILE)
    async def read_file(self, call: ReadFileInput) -> ReadFileOutput:
        """Read one regular file."""

        async def read(open_call: OpenCall) -> bytes:
            return await open_call.pool.client.read_file(open_call.pod, open_call.proof, call.path, call.limit)

        with translated():
            pool = self._pools.get(call.ref.spec.profile)
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                answer = await on_pod(pool, call.ref, FILE_CALL_S, read)
            return ReadFileOutput(
                step=answer.step,
                lease=answer.lease,
                first_scheduled=answer.first_scheduled,
                searchable=self._pools.searchable,
                data=answer.value or b"",
            )

    @activity.defn(name=names.WATCH_COMMAND)
    async def watch_command(self, call: WatchInput) -> WatchOutput:
        """Say how far a running command is, for who follows it from outside."""

        async def look(open_call: OpenCall) -> emberd_client.Progress | None:
            return await open_call.pool.client.look(open_call.pod, open_call.proof, call.execution_id)

        with translated():
            pool = self._pools.get(call.ref.spec.profile)
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                answer = await on_pod(pool, call.ref, FILE_CALL_S, look)
            told: dict[str, object] = {} if answer.value is None else asdict(answer.value)
            rest = {"step": answer.step, "lease": answer.lease, "first_scheduled": answer.first_scheduled}
            return WatchOutput.model_validate(told | rest)

    @activity.defn(name=names.DETACH_SANDBOX)
    async def detach_sandbox(self, call: CallInput) -> Nothing:
        """Exempt the sandbox from the sweep of closed holders, until it is adopted or its hold ends."""
        with translated():
            pool = self._pools.get(call.ref.spec.profile)
            if not await pool.index.detach(call.ref.request_id):
                raise SandboxLost("unknown", "no", "there was no lease to detach")
            return Nothing()

    @activity.defn(name=names.ADOPT_SANDBOX)
    async def adopt_sandbox(self, call: AdoptInput) -> Nothing:
        """Make the ref's holder the holder of a detached sandbox."""
        with translated():
            pool = self._pools.get(call.ref.spec.profile)
            if not await pool.index.adopt(call.ref.request_id, call.ref.holder):
                raise SandboxLost("unknown", "no", "the detached sandbox is gone")
            return Nothing()

    async def _short(self, call: CallInput, do: Callable[[OpenCall], Awaitable[None]]) -> CallOutput:
        pool = self._pools.get(call.ref.spec.profile)
        async with heartbeating(self._pools.heartbeat_s, lambda: None):
            answer = await on_pod(pool, call.ref, FILE_CALL_S, do)
        return CallOutput(
            step=answer.step,
            lease=answer.lease,
            first_scheduled=answer.first_scheduled,
            searchable=self._pools.searchable,
        )
