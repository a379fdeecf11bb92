"""A thousand warm claims and commands in real pods, and what the API server's audit log has of them: nothing."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest
from fixtures.cluster import ClusterUp, audit_lines
from fixtures.kubernetes_pool import CALLER, PROFILE, cluster_profile, kubernetes_pool
from fixtures.stack import Site
from testcluster.cluster import Cluster

from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

CALLS, AT_ONCE, PODS = 1_000, 8, 4
LOOKS_EVERY_S = 15
"""Between two looks at all pods, by which a worker finds what its watch was not told."""
pytestmark = pytest.mark.cluster


async def test_a_thousand_calls_need_no_request(
    stack: EmbeddedStack, cluster: ClusterUp, record_property: Callable[[str, object], None]
) -> None:
    """Each is a claim, a command, a release and an attested reset. Meanwhile the workers send the API server only what
    goes on without any call: the one watch of their pool, and a look at it now and then. Pods created: those of the
    beginning."""
    own = cluster.own
    if own is None:
        pytest.skip("the audit log of another cluster cannot be read here")
    of = cluster_profile(min_warm=PODS, max_pods=PODS, kubernetes={"cpu": 0.1})
    begun = len(audit_lines(own))
    async with kubernetes_pool(stack, cluster.access, of) as site:
        await many(site, 2 * PODS)  # pods that were warm and unused become the caller's
        before, began = len(audit_lines(own)), time.monotonic()
        done = await many(site, CALLS)
        requests = from_workers(own, before)
        created = [line for line in from_workers(own, begun) if line.startswith("create ") and "/pods" in line]
    assert all(one.result.text == "42\n" for one in done)
    sources, outcomes = Counter(one.source for one in done), Counter(one.recycled for one in done)
    assert set(sources) == {Source.REUSE}, sources
    assert set(outcomes) <= {RecycleOutcome.IDLE, RecycleOutcome.HANDED_OVER}, outcomes
    took_s = time.monotonic() - began
    assert [line for line in requests if not line.startswith(("watch ", "list "))] == [], requests
    assert len(requests) <= 2 + took_s / LOOKS_EVERY_S, "once in a while, however many calls there are"
    record_property("pods_created_per_1000_rollouts", len(created))
    assert len({one.pod for one in done}) <= len(created) == PODS, created


async def many(site: Site, count: int) -> list[RunToolOutput]:
    """That many calls, some at once."""
    tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
    given = RunToolInput(profile=PROFILE, caller=CALLER, command=Command(argv=("echo", "42")))
    left, done = iter(range(count)), list[RunToolOutput]()

    async def work() -> None:
        for _ in left:
            done.append(await tools.call(f"call-{uuid.uuid4().hex}", given))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return done


def from_workers(cluster: Cluster, since: int) -> list[str]:
    """Requests by Python programs after that many lines of the audit log: everything that is not the cluster's own."""
    lines = audit_lines(cluster)[since:]
    ours = [line for line in lines if "python" in str(line.get("userAgent", "")).lower()]
    return [f"{line['verb']} {line['requestURI']}" for line in ours]
