"""Between worker and pod answers come in pieces, are cut, and stay away: the activity beats on, and its command runs on
(kubernetes-client/python#602: a call into a silent connection blocked for ever)."""

import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fixtures.faulty_proxy import FaultyProxy, faulty_proxy
from fixtures.processes import runs
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Commands, Seen
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowHandle

from emberpool.pool.client import emberd_client, exchange
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.worker.stack.embedded import EmbeddedStack

COUNT = "echo once >> starts; i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo $i; sleep 0.2519; done; exit 7"
HEARTBEAT_S = 2.0
"""Without a heartbeat for this long the server begins a second attempt."""


async def test_pieces_cuts_and_silence(stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's only way to its pod passes seven bytes at a time on, cuts connections in the middle of answers, then
    swallows everything for longer than a heartbeat may stay away. One attempt, one start, and the right end."""
    for name in ("ANSWER_S", "AGAIN_S"):
        monkeypatch.setattr(emberd_client, name, 1.0)
    kept_s = exchange.KEEP_ALIVE_S
    monkeypatch.setattr(exchange, "KEEP_ALIVE_S", 0.0)  # no connection from before the proxy is left
    settings = site_settings(stack, Profile(name="py", min_warm=1, max_pods=1))
    async with running_site(stack, settings) as site, before_the_pod(site) as proxy:
        monkeypatch.setattr(exchange, "KEEP_ALIVE_S", kept_s)
        proxy.split, proxy.cut_after = 7, 700
        plan = site.plan(commands=(COUNT, "cat starts"), heartbeat_s=HEARTBEAT_S)
        handle = await site.client.start_workflow(Commands.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)

        async def was_cut() -> bool:
            return proxy.cuts >= 3

        await wait_until(was_cut, 20)
        proxy.cut_after = None
        await swallowed(proxy, handle)
        seen = await handle.result()
        history = await handle.fetch_history()
    assert seen.results[0].stdout == b"".join(b"%d\n" % number for number in range(1, 31))
    assert (seen.results[0].outcome, seen.results[0].exit_code) == (Outcome.EXITED, 7)
    assert seen.results[1].stdout == b"once\n"
    attempts = {event.activity_task_started_event_attributes.attempt for event in history.events}
    assert attempts <= {0, 1}, attempts


@asynccontextmanager
async def before_the_pod(site: Site) -> AsyncGenerator[FaultyProxy]:
    """A proxy in the place of the idle pod's socket."""

    async def warm() -> bool:
        return bool(await site.index.pods(PodState.IDLE, 1))

    await wait_until(warm)
    (pod,) = await site.index.pods(PodState.IDLE, 1)
    path = pod.endpoint.removeprefix("unix:")
    os.rename(path, f"{path}.far")
    async with faulty_proxy(f"{path}.far", at=path) as proxy:
        yield proxy


async def swallowed(proxy: FaultyProxy, handle: WorkflowHandle[Any, Seen]) -> None:
    """Swallow everything until the server was told, by heartbeats alone, that the activity lives."""
    began = (await pending(handle)).last_heartbeat_time.ToNanoseconds()
    proxy.black_hole, passed = True, proxy.passed

    async def beaten() -> bool:
        return (await pending(handle)).last_heartbeat_time.ToNanoseconds() - began > 1.7 * HEARTBEAT_S * 1e9

    await wait_until(beaten, 20)
    now = await pending(handle)
    assert (now.attempt, proxy.passed) == (1, passed) and runs("sleep 0.2519"), now
    proxy.black_hole = False


async def pending(handle: WorkflowHandle[Any, Seen]) -> PendingActivityInfo:
    """The activity that runs, as the server knows it."""
    (one,) = (await handle.describe()).raw_description.pending_activities
    return one
