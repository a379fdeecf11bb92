"""A pod read into the few facts that decide, and what they mean. None: not published yet, which is not empty."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.model.pod import Phase

Json = dict[str, Any]
CONTAINER = "emberd"
"""Name of the one container of a pod."""
IMAGE_NOTE = "emberpool.dev/image"
"""Annotation with the image's name as claims give it."""
TLS_NOTE = "emberpool.dev/tls"
"""Annotation of a pod whose emberd speaks TLS: "true"."""
STARTS_NOTE = "emberpool.dev/starts"
"""Annotation that tells of the image swaps that a pod has had: see back_off.py."""
PORT = 7070
"""emberd's, in every pod."""
HOPELESS_PULL = ("InvalidImageName", "ErrImageNeverPull")
FAILING_PULL = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
REFUSED_PULL = ("not found", "manifest unknown", "denied", "unauthorized", "forbidden", "no match for platform")
"""What a registry says of an image that will not be there a minute later either."""
FAILING_START = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError")
EVICTING = ("EvictionByEvictionAPI", "PreemptionByScheduler", "TerminationByKubelet")
NODE_GOES = ("DeletionByTaintManager", "DeletionByPodGC")
"""The node's pods are taken off it: it is not ready or does not answer, or is no more."""
ANEW = 5
"""emberd's exit status if it was told to end so that its container is started again."""
SIGNALS = {137: "SIGKILL", 143: "SIGTERM", 139: "SIGSEGV", 134: "SIGABRT"}


class Ended(Frozen):
    """How the container ended."""

    exit_code: int
    reason: str = ""
    told: str = ""
    """Why emberd did not begin to serve, in its own words; in the runtime's where it could not start the container."""


class PodView(Frozen):
    """One pod at one moment."""

    name: PodName
    uid: PodUid
    created: float
    """Unix time of the API server's clock, whole seconds."""
    generation: int
    observed: int
    """The generation that the kubelet has seen, 0 if it does not say."""
    phase: str
    reason: str
    """Of the pod's status: Evicted and the like."""
    deleting: bool
    node: str | None
    address: str | None
    image: str
    """Name of the image as claims give it."""
    reference: str
    """The image's reference in the pod's specification."""
    starts: str = ""
    """What is noted of its swaps: see back_off.py."""
    restarts: int
    running: bool
    started: float
    """Unix time at which the container that runs was started, by its node's clock; 0 if none runs."""
    comes_back: bool
    """Whether the kubelet starts the container again that ended."""
    waiting: str
    """Why the container waits, "" if it does not."""
    detail: str
    """The message of whatever is wrong."""
    ended: Ended | None
    unschedulable: bool
    evicted: str
    """Why it is being evicted, "" if it is not."""
    cut_off: bool
    """Whether it runs for all that its kubelet has said, and the control plane says that it is not ready: its node has
    not been heard of for a while."""
    resize_pending: str
    """Deferred or Infeasible and why, "" if no resize waits."""
    resize_refused: str
    """Why the runtime does not carry out a resize that the node has granted, "" if none is refused."""
    tls: bool
    """Whether its emberd speaks TLS."""
    requests: Mapping[str, str]
    """What the container is given now, as the kubelet says; what the specification asks for until it does."""

    @property
    def endpoint(self) -> str:
        """Where emberd listens; "" while the pod has no address."""
        host = f"[{self.address}]" if self.address and ":" in self.address else self.address
        return f"{'https' if self.tls else 'http'}://{host}:{PORT}" if host else ""

    @property
    def incarnation(self) -> tuple[PodUid, int]:
        """Tells one run of the container from the next."""
        return self.uid, self.restarts


def view(pod: Mapping[str, Any]) -> PodView:
    """Read a pod's JSON."""
    meta, spec, status = pod["metadata"], pod["spec"], _part(pod, "status")
    container = next((one for one in _parts(status, "containerStatuses") if one["name"] == CONTAINER), Json())
    state = _part(container, "state")
    waiting, terminated = _part(state, "waiting"), state.get("terminated")
    conditions = {str(one["type"]): one for one in _parts(status, "conditions")}
    scheduled, target = _part(conditions, "PodScheduled"), _part(conditions, "DisruptionTarget")
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    asked = next(one for one in spec["containers"] if one["name"] == CONTAINER)
    given = _part(_part(container, "resources") or _part(asked, "resources"), "requests")
    messages = (waiting.get("message"), scheduled.get("message") if unschedulable else "", status.get("message"))
    return PodView(
        name=PodName(meta["name"]),
        uid=PodUid(meta["uid"]),
        created=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
        generation=meta.get("generation") or 0,
        observed=status.get("observedGeneration") or 0,
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or "",
        deleting=meta.get("deletionTimestamp") is not None,
        node=spec.get("nodeName"),
        address=status.get("podIP"),
        image=str(_part(meta, "annotations").get(IMAGE_NOTE) or ""),
        reference=asked.get("image") or "",
        starts=str(_part(meta, "annotations").get(STARTS_NOTE) or ""),
        restarts=container.get("restartCount") or 0,
        running="running" in state,
        started=_time(_part(state, "running").get("startedAt")),
        comes_back=spec.get("restartPolicy") == "Always",
        waiting=waiting.get("reason") or "",
        detail=next((text for text in messages if text), ""),
        ended=_ended(terminated) if terminated else None,
        unschedulable=unschedulable,
        evicted=target.get("reason") or "" if target.get("status") == "True" else "",
        cut_off=_cut_off(pod, container, _part(conditions, "Ready")),
        resize_pending=_pending(_part(conditions, "PodResizePending")),
        resize_refused=_refused(_part(conditions, "PodResizeInProgress")),
        tls=_part(meta, "annotations").get(TLS_NOTE) == "true",
        requests={name: str(amount) for name, amount in given.items()},
    )


def _cut_off(pod: Mapping[str, Any], container: Json, ready: Json) -> bool:
    """Our pods have no readiness probes, so that a kubelet calls the pod of a container that is ready ready too."""
    runs = "running" in _part(container, "state") and container.get("ready") is True
    return runs and ready.get("status") == "False" and pod["metadata"].get("deletionTimestamp") is None


def _time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _part(whole: Mapping[str, Any], name: str) -> Json:
    """An object's field that is an object; empty if it is not published."""
    part: Json | None = whole.get(name)
    return part or Json()


def _parts(whole: Mapping[str, Any], name: str) -> list[Json]:
    parts: list[Json] | None = whole.get(name)
    return parts or []


def _ended(terminated: Json) -> Ended:
    reason, message = str(terminated.get("reason") or ""), str(terminated.get("message") or "")
    told = message[:300] if reason in FAILING_START else _told(message)
    return Ended(exit_code=terminated["exitCode"], reason=reason, told=told)


def _told(log: str) -> str:
    """emberd's last word, in what the kubelet keeps of the container's log."""
    for line in reversed(log.splitlines()):
        if line.startswith('{"ready": false'):
            try:
                return str(json.loads(line)["reason"])[:300]
            except (ValueError, KeyError):
                return ""  # cut by the kubelet
    return ""


def _pending(condition: Json) -> str:
    if condition.get("status") != "True":
        return ""
    return f"{condition.get('reason')}: {condition.get('message')}"


def _refused(condition: Json) -> str:
    failed = condition.get("status") == "True" and condition.get("reason") == "Error"
    return str(condition.get("message") or "Error") if failed else ""


def verdict(pod: PodView, answered: bool, waits_s: float, patience_s: float) -> tuple[Phase, str]:
    """Where the pod stands, and why if it failed; also why it still waits, if something is wrong.

    `answered`: its emberd has answered in this incarnation. `waits_s`: how long it has been in its present trouble.
    """
    lost = _end(pod)
    if lost:
        return Phase.FAILED, lost
    trouble, hopeless = _trouble(pod)
    if trouble:
        gone = hopeless or waits_s >= patience_s
        return (Phase.FAILED if gone else Phase.PENDING), trouble
    if pod.running and pod.address and answered:
        return Phase.READY, ""
    return Phase.PENDING, ""


def in_trouble(pod: PodView) -> bool:
    """Whether the pod's verdict may change with time alone."""
    return bool(_trouble(pod)[0])


def may_be_the_nodes_fault(pod: PodView) -> bool:
    """Whether another node might start a pod that failed to: not where its image is not to be had anywhere, or what is
    in it does not run."""
    if pod.waiting in FAILING_PULL:
        return not _trouble(pod)[1]
    unstarted = pod.ended is not None and pod.ended.reason in FAILING_START
    return pod.waiting in FAILING_START or unstarted or pod.reason == "Evicted"


def _end(pod: PodView) -> str:
    """Why the pod is over; "" if it is not. The order is from the cause to its effects."""
    if pod.evicted in NODE_GOES:
        return f"node_lost: {pod.node or 'its node'}: {pod.evicted}"
    if pod.evicted in EVICTING:
        return f"evicted: {pod.evicted}"
    if pod.reason == "Evicted":
        return f"evicted: {pod.detail}"
    if pod.ended is not None and not (pod.comes_back and pod.ended.exit_code == ANEW):
        return _exit(pod.ended)
    if pod.reason in ("NodeLost", "NodeShutdown", "Shutdown", "NodeAffinity"):
        return f"node_lost: {pod.detail or pod.reason}"
    if pod.phase in ("Failed", "Succeeded"):
        return f"exited: {pod.detail or pod.reason or pod.phase}"
    return "deleted" if pod.deleting else ""


def _exit(ended: Ended) -> str:
    if ended.reason == "OOMKilled":
        return "oom: the container was killed for its memory"
    if ended.reason in FAILING_START:
        return f"not_started: {ended.reason} {ended.told}".rstrip()
    if ended.exit_code in SIGNALS:
        return f"exited: killed by {SIGNALS[ended.exit_code]}"
    detail = f" ({ended.reason})" if ended.reason not in ("", "Error", "Completed") else ""
    detail += f": {ended.told}" if ended.told else ""
    return f"exited: status {ended.exit_code}{detail}"


def _trouble(pod: PodView) -> tuple[str, bool]:
    """What keeps the pod from starting, and whether it can still pass."""
    if pod.unschedulable:
        return f"unschedulable: {pod.detail}", False
    if pod.waiting in HOPELESS_PULL:
        return f"image_pull: {pod.detail or pod.waiting}", True
    if pod.waiting in FAILING_PULL:
        refused = any(word in pod.detail.lower() for word in REFUSED_PULL)
        return f"image_pull: {pod.detail or pod.waiting}", refused
    if pod.waiting in FAILING_START or pod.waiting == "CrashLoopBackOff":
        return f"not_started: {pod.waiting} {pod.detail}".rstrip(), False
    return "", False
