"""Each way in which a pod fails is told by name within seconds: to whoever waits for it, to the watch, and, typed, to
the caller whose command ran in it. The API is simulated, emberd real."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures.kubernetes_json import ended, pod_json, running, waiting
from fixtures.kubernetes_pool import PROFILE, kubernetes_pool, pool_profile
from fixtures.local import new_name, watching
from fixtures.simulated_kubernetes import IMAGES, NO_MEMORY, SimulatedKubernetes, SimulatedSite, simulated_kubernetes
from fixtures.stack import Site
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.contract import PodRecord
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import EmberpoolError, InvalidInput, PodUnreachable, PoolUnavailable, SandboxLost
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.kubernetes import pacing
from emberpool.pool.providers.kubernetes.pacing import BREAK_AFTER, FIRST_BATCH
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

SOON_S = 5.0
PATIENCE_S = 0.5
Json = dict[str, Any]


def disrupted(reason: str) -> Json:
    """The status of a pod that something takes away while it runs."""
    return status(running(conditions=({"type": "DisruptionTarget", "status": "True", "reason": reason},)))


def status(pod: Json) -> Json:
    """A pod's status alone, without the address, which is the simulated kubelet's."""
    return {name: value for name, value in pod["status"].items() if name != "podIP"}


FULL = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".'
ENDS: dict[str, tuple[Json, str]] = {
    "oom": (status(ended(137, "OOMKilled")), "oom: "),
    "evicted through the API": (disrupted("EvictionByEvictionAPI"), "evicted: EvictionByEvictionAPI"),
    "preempted": (disrupted("PreemptionByScheduler"), "evicted: PreemptionByScheduler"),
    "evicted by its node": (status(pod_json(phase="Failed", reason="Evicted", message=FULL)), f"evicted: {FULL}"),
    "node does not answer": (disrupted("DeletionByTaintManager"), "node_lost: node-1: "),
    "node is no more": (
        {**disrupted("DeletionByPodGC"), "phase": "Failed"},
        "node_lost: node-1: DeletionByPodGC",
    ),
    "node shuts down": (status(pod_json(phase="Failed", reason="NodeShutdown", message="bye")), "node_lost: bye"),
}
"""Statuses as control plane and kubelets write them, and how the reason begins."""


@pytest.mark.parametrize(("said", "reason"), ENDS.values(), ids=ENDS)
async def test_the_end_of_a_pod_is_told_at_once(simulated_site: SimulatedSite, said: Json, reason: str) -> None:
    """decocms/studio#7011: with the cause, not with its effect, by the watch as by whoever asks."""
    provider, name = simulated_site.kubernetes, new_name()
    await provider.create(name, "")
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    async with watching(provider) as changes:
        assert (await anext(changes)).phase is Phase.READY
        began = time.monotonic()
        await simulated_site.api.strike(name, said)
        facts = await anext(changes)
    assert time.monotonic() - began < SOON_S
    assert facts.phase is Phase.FAILED and facts.reason.startswith(reason), facts
    assert await provider.wait_ready(name, 0) == facts


BIRTHS: dict[str, tuple[Json, str]] = {
    "no such image": (status(waiting("ErrImagePull", "x:1: not found")), "image_pull: x:1: not found"),
    "registry away": (status(waiting("ImagePullBackOff", "connection refused")), "image_pull: connection refused"),
    "no room": (status(pod_json(conditions=(NO_MEMORY,))), "unschedulable: 0/1 nodes are available: 1 Insufficient"),
    "no container": (status(waiting("CreateContainerError", "no disk")), "not_started: CreateContainerError no disk"),
}


@pytest.mark.parametrize(("said", "reason"), BIRTHS.values(), ids=BIRTHS)
async def test_a_pod_that_will_not_be_is_told_soon(simulated_site: SimulatedSite, said: Json, reason: str) -> None:
    """opensandbox-group/OpenSandbox#1956: within the profile's patience, in the words of whoever refuses it."""
    simulated_site.api.never_run = said
    provider, name = simulated_site.make(kubernetes={"patience_s": PATIENCE_S}), new_name()
    began = time.monotonic()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 30)
    assert time.monotonic() - began < PATIENCE_S + SOON_S
    assert facts.phase is Phase.FAILED and facts.reason.startswith(reason), facts


async def test_pods_that_fail_stop_creation(simulated_site: SimulatedSite) -> None:
    """After some in a row the API server is asked for no other for a while; one that is then made and serves opens it
    again."""
    api = simulated_site.api
    api.never_run = BIRTHS["no such image"][0]
    provider = simulated_site.kubernetes
    for _ in range(BREAK_AFTER):
        name = new_name()
        await provider.create(name, "")
        assert (await provider.wait_ready(name, 30)).phase is Phase.FAILED
        await provider.delete(name)
    api.never_run, asked = None, posts(api)
    later = new_name()
    creating = asyncio.create_task(provider.create(later, ""))
    done, _ = await asyncio.wait([creating], timeout=1.5)
    assert not done and posts(api) == asked == BREAK_AFTER
    await creating
    assert (await provider.wait_ready(later, 30)).phase is Phase.READY


ON_A_POOR_NODE: dict[str, tuple[Json, bool]] = {
    "its registry is away": (BIRTHS["registry away"][0], True),
    "its disk is full": (BIRTHS["no container"][0], True),
    "its network says nothing": (status(running()), True),
    "the image is nowhere": (BIRTHS["no such image"][0], False),
    "its program ends": (status(ended(1)), False),
}


@pytest.mark.parametrize(("said", "avoided"), ON_A_POOR_NODE.values(), ids=ON_A_POOR_NODE)
async def test_a_node_on_which_pods_do_not_start_is_passed_over(
    simulated_site: SimulatedSite, said: Json, avoided: bool
) -> None:
    """opensandbox-group/OpenSandbox#1956: after two of them, if it may be the node's fault, the next pods ask to be put
    elsewhere first; only ask, so that it is tried where there is no other. One that serves there ends it."""
    api, provider = simulated_site.api, simulated_site.make(kubernetes={"patience_s": 0.1})
    api.never_run = said
    for _ in range(2):
        name = new_name()
        await provider.create(name, "")
        assert "affinity" not in api.pods[name]["spec"]
        await provider.wait_ready(name, 0.3)
        await provider.delete(name)
    api.never_run, names = None, [new_name(), new_name()]
    for name in names:
        await provider.create(name, "")
        assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    elsewhere = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]}
    wishes = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": elsewhere}]}
    asked = [api.pods[name]["spec"].get("affinity") for name in names]
    assert asked == [{"nodeAffinity": wishes} if avoided else None, None]


async def test_emberds_that_never_answer_stop_creation(
    simulated_site: SimulatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a network policy that is wrong: pods run, whoever waits for them gives each up and deletes it. That
    counts as a failed start, so that no other is made for a while; once they answer, all goes on. A look without a
    wait, and a pod that is deleted before its time is over, count for nothing."""
    monkeypatch.setattr(pacing, "PAUSE_S", 1.0)
    api, provider = simulated_site.api, simulated_site.make()
    api.never_run = status(running())
    for turn in range(3 * BREAK_AFTER):
        patient, name = turn >= 2 * BREAK_AFTER, new_name()
        await provider.create(name, "")
        assert (await provider.wait_ready(name, 0.2 if patient else 0)).phase is Phase.PENDING
        await provider.delete(name)
    api.never_run, asked, later = None, posts(api), new_name()
    creating = asyncio.create_task(provider.create(later, ""))
    done, _ = await asyncio.wait([creating], timeout=0.5)
    assert not done and posts(api) == asked == 3 * BREAK_AFTER
    await creating
    assert (await provider.wait_ready(later, 30)).phase is Phase.READY
    await asyncio.wait_for(provider.create(new_name(), ""), 0.5)


@pytest.mark.parametrize(
    ("words", "kind"),
    [("exceeded quota: pods, requested: pods=1", PoolUnavailable), ("violates PodSecurity", InvalidInput)],
)
async def test_a_creation_that_is_refused_is_typed(
    simulated_site: SimulatedSite, words: str, kind: type[EmberpoolError]
) -> None:
    """A full quota empties itself and is waited for; what the cluster's policy forbids is the profile's mistake, in the
    API server's words. Neither takes a place of those that may be starting at once."""
    provider, api = simulated_site.make(kubernetes={"starting_at_once": 1}), simulated_site.api
    api.admission = words
    for _ in range(2):
        with pytest.raises(kind, match=words):
            await provider.create(new_name(), "")
    api.admission = ""
    name = new_name()
    await provider.create(name, "")
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY


def posts(api: SimulatedKubernetes) -> int:
    """Pods that were asked for."""
    return sum(line.startswith("POST ") for line in api.calls)


async def test_a_few_go_first_and_never_too_many(simulated_site: SimulatedSite) -> None:
    """Of twelve pods that are wanted at once four are created before one is ready, and at most five are starting."""
    warm = {"warm_up": ("sleep", "0.4"), "kubernetes": {"starting_at_once": 5}}
    provider, api = simulated_site.make(**warm), simulated_site.api
    names, most, ready = [new_name() for _ in range(12)], 0, set[PodName]()

    async def born(name: PodName) -> None:
        nonlocal most
        await provider.create(name, "")
        starting = posts(api) - len(ready)
        most = max(most, starting)
        assert ready or starting <= FIRST_BATCH
        assert (await provider.wait_ready(name, 60)).phase is Phase.READY
        ready.add(name)

    await asyncio.gather(*map(born, names))
    assert FIRST_BATCH <= most <= 5 + 1, most


async def test_a_pod_waits_for_its_neighbours_to_go(simulated_site: SimulatedSite) -> None:
    """NVIDIA/k8s-device-plugin#461: a device that is sliced by number lets jobs in that together want more than there
    is, and all crash. What pods here share is given out by amount: two of 40 % each run, the third waits, however many
    slots the pool has; it is told what is short, and starts once a neighbour has gone. (emberpool lets no two pods have
    one GPU: there are no slices of one to ask for.)"""
    site = simulated_site
    site.api.memory_mb = 1000
    about = {"limits": {"memory_mb": 400}, "max_pods": 4}
    patient, hasty = (
        site.make(**about, kubernetes={"patience_s": 30.0}),
        site.make(**about, kubernetes={"patience_s": PATIENCE_S}),
    )
    one, two, third, hurried = (new_name() for _ in range(4))
    for name in (one, two, third):
        await patient.create(name, "")
    for name in (one, two):
        assert (await patient.wait_ready(name, 30)).phase is Phase.READY
    await hasty.create(hurried, "")
    facts = await hasty.wait_ready(hurried, 30)
    assert facts.phase is Phase.FAILED and "1 Insufficient memory" in facts.reason, facts
    await hasty.delete(hurried)
    assert (await patient.wait_ready(third, 0.3)).phase is Phase.PENDING
    await patient.delete(one)
    assert (await patient.wait_ready(third, 30)).phase is Phase.READY
    assert await site.emberd_state(two), "the neighbour noticed nothing"


async def test_each_pod_gets_what_was_granted_to_it(simulated_site: SimulatedSite) -> None:
    """Project-HAMi/HAMi#404: two pods of unequal shares start together while one of them starts anew: a grant that is
    matched by order goes to the wrong one. Here it stands in the pod's own manifest, with its UID: before and after the
    restart the small one has its small share, and the large one the large."""
    site = simulated_site
    small, large = (site.make(limits={"memory_mb": size, "pids": 64}) for size in (48, 480))
    names = [(provider, new_name()) for provider in (small, large, small, large)]
    await asyncio.gather(*(provider.create(name, "") for provider, name in names))
    await asyncio.gather(*(provider.wait_ready(name, 30) for provider, name in names))
    await asyncio.gather(*(site.api.kubelet(name).replace() for _, name in names[:2]))
    eats = "python3 -c 'b = bytearray(150 << 20); import time; time.sleep(0.5); print(len(b) >> 20)'"
    for provider, name in names:
        site.kubernetes = provider

        async def serves(name: PodName = name) -> bool:
            # The watch may not have heard of the restart yet, so emberd itself is asked.
            try:
                await site.emberd_state(name)
            except PodUnreachable:
                return False
            return (await site.kubernetes.wait_ready(name, 0)).phase is Phase.READY

        await wait_until(serves)
        said = await site.job(name, eats)
        assert said == ("150\n" if provider is large else ""), (provider.profile.limits, said)


Strike = Callable[[SimulatedKubernetes, str], Awaitable[None]]


def says(said: Json) -> Strike:
    """The control plane or the kubelet writes this."""

    async def strike(api: SimulatedKubernetes, name: str) -> None:
        await api.strike(name, said)

    return strike


async def start_anew(api: SimulatedKubernetes, name: str) -> None:
    """The container is started again in its pod, volumes and all."""
    await api.kubelet(name).replace()


async def kill(api: SimulatedKubernetes, name: str) -> None:
    """The node kills what runs in the pod."""
    os.kill(api.kubelet(name).pid, signal.SIGKILL)


STRIKES: dict[str, tuple[Strike, str]] = {
    "oom": (says(ENDS["oom"][0]), "oom: the container was killed for its memory"),
    "evicted": (says(ENDS["evicted by its node"][0]), f"evicted: {FULL}"),
    "node": (says(ENDS["node is no more"][0]), "node_lost: node-1: DeletionByPodGC"),
    "restart": (start_anew, "restarted"),
    "kill": (kill, "exited: killed by SIGKILL"),
}


async def test_whose_command_ran_there_hears_why(stack: EmbeddedStack, tmp_path: Path) -> None:
    """SandboxLost with the cause, and that the command may have run, within seconds and not retried: not an empty
    machine (UKGovernmentBEIS/inspect_k8s_sandbox#35), not a wait for what the node has killed (google/gvisor#11590).
    Five callers, five faults at once."""
    profile = pool_profile(images=IMAGES, least_tier="sweep", network="open", min_warm=0, max_pods=len(STRIKES))
    async with simulated_kubernetes(tmp_path) as (api, access), kubernetes_pool(stack, access, profile) as site:
        calls: dict[str, asyncio.Task[RunToolOutput]] = {}
        pods: dict[str, PodName] = {}
        for name in STRIKES:
            calls[name] = asyncio.create_task(sleeps(site, name))
            pods[name] = await newly_leased(site, set(pods.values()))
        began = time.monotonic()
        await asyncio.gather(*(strike(api, pods[name]) for name, (strike, _) in STRIKES.items()))
        ends = dict(zip(calls, await asyncio.gather(*calls.values(), return_exceptions=True), strict=True))
        assert time.monotonic() - began < 60
    for name, (_, reason) in STRIKES.items():
        error = ends[name]
        assert isinstance(error, SandboxLost), (name, error)
        assert (error.reason, error.executed) == (reason, "unknown"), (name, error)


async def sleeps(site: Site, caller: str) -> RunToolOutput:
    """A call that takes longer than any test."""
    tools = ToolClient(site.client, profile=PROFILE, caller=caller, task_queue=site.queue)
    given = RunToolInput(profile=PROFILE, caller=caller, command=Command(shell="sleep 300", time_limit_s=300))
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)


async def newly_leased(site: Site, before: set[PodName]) -> PodName:
    """The pod that was leased last, once its command runs."""
    found: list[PodName] = []

    async def one_more() -> bool:
        leased = [pod for pod in await site.index.pods(PodState.LEASED, 10) if pod.name not in before]
        found[:] = [pod.name for pod in leased if await runs_something(site, pod)]
        return bool(found)

    await wait_until(one_more, 60)
    return found[0]


async def runs_something(site: Site, pod: PodRecord) -> bool:
    """Whether its emberd holds a lease: the command is on its way, or there."""
    async with EmberdClient(site.settings.pool_key()) as client:
        return (await client.state(pod.name, pod.endpoint)).state == "held"
