"""What a pod's status means: each way to fail has a word of its own, and a pod that may still come is not given up."""

from types import SimpleNamespace
from typing import Any

import pytest
from fixtures.kubernetes_json import ended, pod_json, running, waiting

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes import standing
from emberpool.pool.providers.kubernetes.pacing import Pace
from emberpool.pool.providers.kubernetes.quantity import amount, has_amounts, same_amounts
from emberpool.pool.providers.kubernetes.view import verdict, view

PATIENCE_S = 20.0
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


def judged(pod: dict[str, Any], answered: bool = False, waits_s: float = 0.0) -> tuple[Phase, str]:
    """Phase and first word of the reason."""
    phase, reason = verdict(view(pod), answered, waits_s, PATIENCE_S)
    return phase, reason.partition(":")[0]


def test_ready_means_that_emberd_has_answered() -> None:
    """A container that runs is not enough: its emberd may still warm up."""
    assert judged(running()) == (Phase.PENDING, "")
    assert judged(running(), answered=True) == (Phase.READY, "")


def test_a_pod_without_status_is_pending() -> None:
    """Nothing published yet is not empty, nor failed."""
    pod = pod_json()
    del pod["status"]
    assert judged(pod) == (Phase.PENDING, "")
    assert view(pod).address is None


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (ended(137, "OOMKilled"), "oom"),
        (ended(137), "exited"),
        (ended(3), "exited"),
        (pod_json(phase="Failed", reason="Evicted", message="The node was low on resource: memory."), "evicted"),
        (pod_json(phase="Failed", reason="NodeShutdown", message="shutting down"), "node_lost"),
        (running(conditions=({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},)),
         "evicted"),
        (waiting("InvalidImageName", "couldn't parse image reference"), "image_pull"),
        (waiting("ErrImageNeverPull"), "image_pull"),
    ],
)  # fmt: skip
def test_every_end_has_its_word(pod: dict[str, Any], word: str) -> None:
    """OOM, eviction, a lost node, an exit and an impossible image: told apart at once, whether emberd had answered."""
    assert judged(pod, answered=True) == (Phase.FAILED, word)


def test_an_eviction_is_the_cause_and_the_exit_its_effect() -> None:
    """An evicted pod's container is killed by a signal: the eviction is what is told."""
    pod = ended(137, conditions=({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},))
    assert verdict(view(pod), True, 0.0, PATIENCE_S) == (Phase.FAILED, "evicted: EvictionByEvictionAPI")


def test_a_signal_is_named() -> None:
    """128 and a number is how the kubelet tells of a signal."""
    assert verdict(view(ended(137)), True, 0.0, PATIENCE_S)[1] == "exited: killed by SIGKILL"
    assert verdict(view(ended(3)), True, 0.0, PATIENCE_S)[1] == "exited: status 3"


def test_what_a_runtime_cannot_start_is_told_in_its_words() -> None:
    """An image without the program that is to run in it: at once, since it will not be there later."""
    pod = ended(128, "StartError")
    said = 'runc create failed: exec: "python3": executable file not found in $PATH'
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = said
    assert verdict(view(pod), False, 0.0, PATIENCE_S) == (Phase.FAILED, f"not_started: StartError {said}")


def test_a_refused_resize_is_not_one_that_goes_on() -> None:
    """Its runtime's words; nothing while the runtime is at it."""
    goes_on = {"type": "PodResizeInProgress", "status": "True"}
    refused = goes_on | {"reason": "Error", "message": "update: not implemented"}
    assert view(running(conditions=(goes_on,))).resize_refused == ""
    assert view(running(conditions=(refused,))).resize_refused == "update: not implemented"


async def test_a_refused_resize_holds_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would be refused too; after that it may have been a passing fault, and one is tried."""
    async with EmberdClient(b"k" * 32) as client:
        now_s = [1000.0]
        monkeypatch.setattr(standing, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
        stands = standing.Standing(client, PATIENCE_S, Pace(1.0, 1))
        refused = {"type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "no"}
        try:
            assert not stands.refuses_resizes
            pod = view(running(conditions=(refused,)))
            stands.resize_refused(pod)
            assert stands.refuses_resizes
            assert (stands.refusal_of(pod.node), stands.refusal_of("another")) == ("no", "")
            now_s[0] += standing.REFUSAL_S + 1
            assert not stands.refuses_resizes and not stands.refusal_of(pod.node)
        finally:
            await stands.aclose()


def test_a_container_that_was_told_to_start_anew_is_waited_for() -> None:
    """Its emberd's exit status says so, and the kubelet was asked to start it again; any other end is the pod's."""
    for status, policy, phase in (
        (5, "Always", Phase.PENDING),
        (5, "Never", Phase.FAILED),
        (137, "Always", Phase.FAILED),
    ):
        pod = ended(status)
        pod["spec"]["restartPolicy"], pod["status"]["phase"] = policy, "Running"
        assert verdict(view(pod), True, 0.0, PATIENCE_S)[0] is phase, (status, policy)


def test_trouble_that_may_pass_is_waited_for() -> None:
    """opensandbox-group/OpenSandbox#1956: no room, a registry that is away: given up after the profile's patience, with
    the cause; an image that the registry does not have: at once."""
    for pod, word in (
        (pod_json(conditions=(UNSCHEDULABLE,)), "unschedulable"),
        (waiting("ImagePullBackOff", "dial tcp: connection refused"), "image_pull"),
        (waiting("CreateContainerError", "context deadline exceeded"), "not_started"),
    ):
        assert judged(pod) == (Phase.PENDING, word)
        assert judged(pod, waits_s=PATIENCE_S - 0.1) == (Phase.PENDING, word)
        assert judged(pod, waits_s=PATIENCE_S) == (Phase.FAILED, word)
    for said in ("docker.io/x:1: not found", "401 Unauthorized", "denied: requested access to the resource is denied"):
        assert judged(waiting("ErrImagePull", said)) == (Phase.FAILED, "image_pull")


def test_the_reason_says_what_is_missing() -> None:
    """The scheduler's own words reach the caller."""
    _, reason = verdict(view(pod_json(conditions=(UNSCHEDULABLE,))), False, PATIENCE_S, PATIENCE_S)
    assert "Insufficient nvidia.com/gpu" in reason


def test_a_pod_that_is_being_deleted_is_over() -> None:
    """It may answer for its grace time yet, and nobody may be sent there."""
    pod = running()
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:05:05Z"
    assert judged(pod, answered=True) == (Phase.FAILED, "deleted")


def test_a_restart_is_another_incarnation() -> None:
    """UKGovernmentBEIS/inspect_k8s_sandbox#35: the same pod with a container that was started again is not the same
    place."""
    before, after = running(), running()
    after["status"]["containerStatuses"][0]["restartCount"] = 1
    assert view(before).incarnation != view(after).incarnation


def test_an_ipv6_address_makes_an_endpoint() -> None:
    """Its colons are kept from the port's."""
    pod = running()
    pod["status"]["podIP"] = "fd00::7"
    assert view(pod).endpoint == "http://[fd00::7]:7070"


def test_quantities_compare_by_amount() -> None:
    """The server writes 1Gi for 1024Mi and 1 for 1000m."""
    assert same_amounts({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"})
    assert not same_amounts({"cpu": "1", "memory": "1G"}, {"cpu": "1", "memory": "1Gi"})
    assert not same_amounts({"cpu": "1"}, {"cpu": "1", "memory": "1Gi"})
    assert has_amounts({"cpu": "1000m", "ephemeral-storage": "0"}, {"cpu": "1"})
    assert not has_amounts({"ephemeral-storage": "0"}, {"cpu": "1"})
    assert same_amounts({"cpu": "250m"}, {"cpu": "250000u"}) and same_amounts({"cpu": "1u"}, {"cpu": "1000n"})
    numbers = {"1E": 10**18, "1E3": 1000, "1e3": 1000, "+.5k": 500, "2.Ki": 2048, "-1": -1}
    assert {text: amount(text) for text in numbers} == numbers
    for text in ("much", "", "1K", "1 Gi", "1e", "1mi", "NaN", "1_0", "1e999", "Gi"):
        with pytest.raises(ValueError, match="no quantity"):
            amount(text)
