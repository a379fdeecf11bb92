"""From a profile to a pod's manifest and what its emberd is told: pure functions, so that every choice can be read."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from emberpool.pool.client.signing import pod_key
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.gpu_share import Sharing
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.kubernetes import Boundary
from emberpool.pool.model.profile import Network, Profile
from emberpool.pool.providers.kubernetes.injection import EMBERD, inject, python
from emberpool.pool.providers.kubernetes.view import CONTAINER, IMAGE_NOTE, PORT, TLS_NOTE

POOL_LABEL = "emberpool.dev/profile"
DEPLOYMENT_LABEL = "emberpool.dev/deployment"
CONFIG_NOTE = "emberpool.dev/emberd"
"""Annotation with emberd's configuration, the pod's key in it: whoever may read pods may sign for them."""
TOLD, STATE, SCRATCH = "/run/emberd/told", "/run/emberd/state", "/run/emberd/scratch"
TLS = "/run/emberd/tls"
"""Where the Secret with its certificate is mounted; no room has that mount, and a swept job's user cannot read it."""
STANDBY_CPU, STANDBY_MB = "10m", 64
"""What a pod that stands by asks for: next to nothing, so that it fits beside those that work."""
STANDBY_JOBS_MB = 16
JOBS_UID = 60001
"""Of jobs in a pod without namespaces; no distribution gives it to anybody."""
GRACE_S = 2
"""Seconds from SIGTERM to SIGKILL; emberd ends its rooms within one."""
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
"""Variable by which a device plugin says which devices a container has, and an image may ask for all of its node's."""
REFERENCE = re.compile(r"[a-z0-9.-]+(:[0-9]+)?/[^\s@:]+(:[\w.-]+|@sha256:[0-9a-f]{64})")
"""An image's reference in full: registry, path, and a tag or digest."""


def image_reference(profile: Profile, image: str) -> str:
    """The reference of an image as claims name it: a name in the profile's `images`, or a reference itself.

    Raises:
        InvalidInput: the profile has no such image and allows no such reference.
    """
    image = image or profile.base_image
    if image in profile.images:
        return profile.images[image]
    if REFERENCE.fullmatch(image) and (
        image == profile.base_image or image.startswith(profile.kubernetes.image_prefixes or ("\0",))
    ):
        return image
    known = ", ".join(sorted(profile.images)) or "none by name"
    raise InvalidInput(
        "image",
        f"profile {profile.name!r} has no image {image!r}; it has {known}. "
        "Add it to `images`, or the start of its reference to `kubernetes.image_prefixes`",
    )


def requests(profile: Profile, standby: bool) -> dict[str, str]:
    """What a pod reserves on its node of what a resize can change."""
    if standby:
        return {"cpu": STANDBY_CPU, "memory": f"{STANDBY_MB}Mi"}
    return {"cpu": cpu_text(profile.kubernetes.cpu), "memory": f"{profile.limits.memory_mb}Mi"}


def devices(profile: Profile) -> dict[str, str]:
    """GPUs that a pod holds for its life, standby or not: no resize changes an extended resource."""
    share = profile.kubernetes.gpu
    return {} if share is None else {share.resource: str(share.count)}


def cpu_text(cores: float) -> str:
    """Cores as Kubernetes writes them back."""
    return f"{int(cores)}" if cores == int(cores) else f"{math.ceil(cores * 1000)}m"


def in_gvisor(profile: Profile) -> bool:
    """Whether rooms are made in gVisor's kernel, whose overlay takes no upper layer but on a tmpfs of its own."""
    return profile.kubernetes.boundary is Boundary.GVISOR


def in_memory_mb(profile: Profile) -> int:
    """What of the pod's memory its scratch takes, MiB. Without capabilities emberd can mount no tmpfs, nor needs one:
    there are no rooms then, and so no overlays."""
    return profile.kubernetes.scratch_mb if in_gvisor(profile) and profile.kubernetes.ask_capabilities else 0


def emberd_config(profile: Profile, name: PodName, pool_key: bytes, standby: bool) -> str:
    """emberd's configuration as docs/emberd-protocol.md has it; the UID comes from the pod itself."""
    secure = bool(profile.kubernetes.tls_secret)
    config: dict[str, object] = {
        "key": pod_key(pool_key, name).hex(),
        "pod": name,
        "listen": f"{'https' if secure else 'http'}://0.0.0.0:{PORT}",
        "tls": {"cert": f"{TLS}/tls.crt", "key": f"{TLS}/tls.key"} if secure else None,
        "state_dir": STATE,
        "scratch_dir": SCRATCH,
        "room": {
            # Where a node has no namespaces to give, jobs are another user of the pod, which is swept after them.
            "mode": "auto" if profile.may_lack_rooms else "namespaces",
            "job_uid": JOBS_UID if profile.may_lack_rooms else None,
            "root": {"overlay": "/"},
            "env": {},
            "network": "own" if profile.network is Network.NONE else "pod",
        },
        "limits": profile.limits.model_dump(),
        "warm_up": list(profile.warm_up),
        "standby": {"memory_mb": min(STANDBY_JOBS_MB, profile.limits.memory_mb)} if standby else None,
    }
    if in_memory_mb(profile):
        config["scratch_tmpfs_mb"] = in_memory_mb(profile)
    if profile.kubernetes.gpu is not None:
        shared = profile.kubernetes.gpu.sharing is not Sharing.NONE
        config["gpus"] = {"variable": VISIBLE, "shared": shared}
    return json.dumps(config)


def manifest(
    profile: Profile,
    deployment: str,
    name: PodName,
    image: str,
    pool_key: bytes,
    standby: bool,
    resizable: bool = True,
) -> dict[str, Any]:
    """The pod to create. A bare one: nothing but emberpool makes or deletes it. `resizable`: whether its requests can
    be raised in place; if not, one that stands by has them all from the start.

    Raises:
        InvalidInput: the image is unknown, or the profile asks for what pods here cannot promise.
    """
    notes = {
        IMAGE_NOTE: image or profile.base_image,
        CONFIG_NOTE: emberd_config(profile, name, pool_key, standby),
        # The pool itself decides which pods go, and by what order.
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true" if standby else "false",
    }
    if profile.kubernetes.tls_secret:
        notes[TLS_NOTE] = "true"
    labels = dict(profile.kubernetes.labels)
    labels |= {POOL_LABEL: profile.name, DEPLOYMENT_LABEL: deployment, "app.kubernetes.io/managed-by": "emberpool"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": notes},
        "spec": _spec(profile, image_reference(profile, image), standby and resizable),
    }


def steer_away(pod: dict[str, Any], nodes: Sequence[str]) -> None:
    """Ask that the pod be put on other nodes first. Only asked: on a poor node it may start, unplaced it does not."""
    if nodes:
        fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
        wish = {"weight": 100, "preference": {"matchFields": fields}}
        pod["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def _spec(profile: Profile, reference: str, standby: bool) -> dict[str, Any]:
    about = profile.kubernetes
    spec: dict[str, Any] = {
        # A container that ended is a pod that failed: what was in it is gone, and the index must hear of it. Unless its
        # emberd was told to end so that it is started anew, which its exit status tells: see view.py.
        "restartPolicy": "Always" if profile.restarts else "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "dnsPolicy": "Default",
        "hostname": "sandbox",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": dict(about.node_selector),
        "tolerations": [dict(one) for one in about.tolerations],
        "imagePullSecrets": [{"name": name} for name in about.image_pull_secrets],
        "containers": [_container(profile, reference, standby)],
        "volumes": [
            {"name": "told", "downwardAPI": {"defaultMode": 0o400, "items": _told()}},
            {"name": "state", "emptyDir": {"sizeLimit": "1Mi"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": f"{about.scratch_mb}Mi"}},
        ],
    }
    if about.tls_secret:
        # Optional, so that a Secret that is not there is emberd's to tell, in a second, instead of a pod that hangs.
        secret = {"secretName": about.tls_secret, "defaultMode": 0o400, "optional": True}
        spec["volumes"].append({"name": "tls", "secret": secret})
        spec["containers"][0]["volumeMounts"].append({"name": "tls", "mountPath": TLS, "readOnly": True})
    inject(profile, spec)
    if not in_gvisor(profile):
        spec["hostUsers"] = False  # gVisor refuses to start in one: its own kernel is the boundary there
    if about.runtime_class:
        spec["runtimeClassName"] = about.runtime_class
    if about.scheduler_name:
        spec["schedulerName"] = about.scheduler_name
    if about.priority_class:
        spec["priorityClassName"] = about.priority_class
    if about.service_account:
        spec["serviceAccountName"] = about.service_account
    return spec


def _capabilities(profile: Profile) -> list[str]:
    """What emberd makes rooms with, NET_ADMIN for the loopback of a room with its own network. Jobs have none.

    By `hostUsers: false` they count inside the pod's own user namespace only, in gVisor in its kernel only, and emberd
    looks whether that is so.
    """
    if not profile.kubernetes.ask_capabilities:
        return []
    return ["SYS_ADMIN", "NET_ADMIN"] if profile.network is Network.NONE else ["SYS_ADMIN"]


def _told() -> list[dict[str, Any]]:
    """Files, not environment: a variable would stand in /proc/1/environ for whoever gets to read that."""
    return [
        {"path": "config", "fieldRef": {"fieldPath": f"metadata.annotations['{CONFIG_NOTE}']"}},
        {"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}},
    ]


def _container(profile: Profile, reference: str, standby: bool) -> dict[str, Any]:
    about = profile.kubernetes
    limits = {"memory": f"{profile.limits.memory_mb + about.extra_memory_mb + in_memory_mb(profile)}Mi"}
    reserved = requests(profile, standby)
    if about.cpu_limit is not None:
        limits["cpu"] = cpu_text(max(about.cpu, about.cpu_limit))
    if profile.may_lack_rooms:
        # Such jobs write outside of emberd's folders too, where it does not count: the node does. Without a request
        # of its own the limit would be reserved on the node.
        limits["ephemeral-storage"] = f"{profile.limits.disk_mb + about.scratch_mb - in_memory_mb(profile)}Mi"
        reserved["ephemeral-storage"] = "0"
    return {
        "name": CONTAINER,
        "image": reference,
        "imagePullPolicy": "IfNotPresent",
        "command": [*python(profile), "-I", EMBERD, TOLD],
        # Where emberd does not serve, its last line says why: the kubelet then has it in the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"name": "emberd", "containerPort": PORT}],
        "resources": {
            # Limits are the full share's from the start: promotion then changes requests alone, which no runtime
            # has to act on, and the pod stays in its class of service, which a resize may not change.
            "requests": reserved | devices(profile),
            "limits": limits | devices(profile),
        },
        # Many CUDA images ask for every device of the node, and its runtime obeys.
        "env": [{"name": VISIBLE, "value": "void"}] if about.gpu is None else [],
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": True,
            "capabilities": {"add": _capabilities(profile)},
        },
        "volumeMounts": [
            {"name": "told", "mountPath": TOLD, "readOnly": True},
            {"name": "state", "mountPath": STATE},
            {"name": "scratch", "mountPath": SCRATCH},
        ],
    }
