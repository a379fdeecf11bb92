"""Gangs whose pods reach each other: a label on each of them, and a network policy that goes by it.

Pods are interchangeable until they are leased, so that neither can be there before. The label comes after the lease,
and goes after the fence, before the pod is free; nobody is handed a pod that has one. Only pools whose gangs may have
peers cost such calls.

Both are written so that a late call does no harm. Whoever puts a label on has read the pod first, then asked its emberd
whether the lease still holds, and writes only if the pod is as it was read; whoever takes one off always changes the
pod, by a note, so that a label which was on its way is refused. Whoever reads the pod after that asks an emberd that is
fenced. The label itself is made of the caller's tag: what one
caller knows of another's gang does not bring a pod of his into it.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from emberpool.pool.model.errors import InvalidInput, PodUnreachable, PoolUnavailable
from emberpool.pool.model.ids import PodName, Tag
from emberpool.pool.providers.kubernetes.access import ApiRefused, Json, KubernetesApi
from emberpool.pool.providers.kubernetes.pod_spec import DEPLOYMENT_LABEL, POOL_LABEL
from emberpool.pool.providers.kubernetes.view import PORT

log = logging.getLogger(__name__)

GANG_LABEL = "emberpool.dev/gang"
LEFT_NOTE = "emberpool.dev/gang-left"
"""Annotation with the epoch at which the pod left its gang."""
LOWEST_PORT = 1024
TRIES = 10
"""Times that a pod is read anew because it has changed since; kubelets write statuses too."""
YOUNG_S = 120.0
"""A policy is as old as this before nobody's being in it means that its gang is over."""
MERGE = "application/merge-patch+json"
NO_RIGHT = re.compile(r"\bcannot (get|create|patch) resource\b")
"""How the API server says that the account lacks a right. A quota, a namespace that ends and a webhook say 403 too."""


def gang_label(tag: Tag, gang: str) -> str:
    """Value of the label of one caller's gang."""
    return hashlib.sha256(f"{tag}/{gang}".encode()).hexdigest()[:32]


def gang_policy(label: str, labels: dict[str, str]) -> Json:
    """Lets the pods of one gang reach each other by TCP and UDP, but on privileged ports and emberd's."""
    chosen = {"matchLabels": {GANG_LABEL: label}}
    ranges = ((LOWEST_PORT, PORT - 1), (PORT + 1, 65535))
    ports = [
        {"protocol": protocol, "port": first, "endPort": last} for protocol in ("TCP", "UDP") for first, last in ranges
    ]
    peers = [{"podSelector": chosen}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"emberpool-gang-{label}", "labels": {**labels, GANG_LABEL: label}},
        "spec": {
            "podSelector": chosen,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers, "ports": ports}],
            "egress": [{"to": peers, "ports": ports}],
        },
    }


class Gangs:
    """The gangs of one pool. Keeps nothing: any worker may take over."""

    def __init__(self, api: KubernetesApi, profile: str, deployment: str) -> None:
        self._api = api
        self._labels = {POOL_LABEL: profile, DEPLOYMENT_LABEL: deployment}

    async def join(self, name: PodName, label: str, holds: Callable[[], Awaitable[None]]) -> None:
        """Let a leased pod reach the others of its gang, and be reached. Idempotent.

        `holds` raises if the lease is over.

        Raises:
            InvalidInput: the worker's account may not.
            PodUnreachable: the pod is gone, or changes faster than it can be written.
            PoolUnavailable: the API cannot be reached, or refuses for another reason.
        """
        await self._policy(label)
        for _ in range(TRIES):
            pod = await self._read(name)
            await holds()
            labels: Json = pod["metadata"].get("labels") or {}
            if labels.get(GANG_LABEL) == label:
                return
            about = {"resourceVersion": pod["metadata"]["resourceVersion"], "labels": {GANG_LABEL: label}}
            try:
                await self._api.call("PATCH", await self._pods(name), body={"metadata": about}, content=MERGE)
                return
            except ApiRefused as error:
                if error.status != 409:
                    raise _refused(error, name) from error
        raise PodUnreachable(name, "it changes faster than its gang's label can be written", sent=True)

    async def leave(self, name: PodName, epoch: int) -> None:
        """Take a fenced pod out of whatever gang it was in, before it may be handed on. One that is gone is out.

        Raises:
            PoolUnavailable: it is not known to be out: it must not be handed on.
        """
        about = {"labels": {GANG_LABEL: None}, "annotations": {LEFT_NOTE: str(epoch)}}
        try:
            await self._api.call("PATCH", await self._pods(name), body={"metadata": about}, content=MERGE)
        except ApiRefused as error:
            if error.status != 404:
                raise PoolUnavailable(f"pod {name} cannot be taken out of its gang: {error}") from error

    async def sweep(self) -> int:
        """Delete policies of gangs that no pod is in any more. Returns how many.

        Raises:
            PoolUnavailable: the API cannot be reached, or refuses us.
        """
        try:
            policies = await self._listed(await self._policies())
            old = [one for one in policies if _age_s(one) > YOUNG_S]
            if not old:
                return 0
            used = {one["metadata"]["labels"][GANG_LABEL] for one in await self._listed(await self._pods())}
            over = [one["metadata"] for one in old if one["metadata"]["labels"][GANG_LABEL] not in used]
            for about in over:
                await self._delete(about["name"])
        except ApiRefused as error:
            raise PoolUnavailable(f"policies of gangs cannot be swept: {error}") from error
        return len(over)

    async def _policy(self, label: str) -> None:
        try:
            await self._api.call("POST", await self._policies(), body=gang_policy(label, self._labels))
        except ApiRefused as error:
            if error.status != 409:
                raise _refused(error, "") from error

    async def _read(self, name: PodName) -> Json:
        try:
            return await self._api.call("GET", await self._pods(name))
        except ApiRefused as error:
            raise _refused(error, name) from error

    async def _listed(self, path: str) -> list[Any]:
        selector = ",".join([GANG_LABEL, *(f"{key}={value}" for key, value in self._labels.items())])
        found: list[Any] = []
        query = {"labelSelector": selector, "limit": "500"}
        while True:
            page = await self._api.call("GET", path, query=query)
            found += page["items"]
            if not page["metadata"].get("continue"):
                return found
            query["continue"] = page["metadata"]["continue"]

    async def _delete(self, name: str) -> None:
        try:
            await self._api.call("DELETE", f"{await self._policies()}/{name}")
        except ApiRefused as error:
            if error.status != 404:
                raise

    async def _policies(self) -> str:
        return f"/apis/networking.k8s.io/v1/namespaces/{await self._api.namespace()}/networkpolicies"

    async def _pods(self, name: str = "") -> str:
        pods = f"/api/v1/namespaces/{await self._api.namespace()}/pods"
        return f"{pods}/{name}" if name else pods


def _age_s(what: Json) -> float:
    created = datetime.fromisoformat(what["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - created).total_seconds()


def _refused(error: ApiRefused, name: str) -> Exception:
    if error.status == 403 and NO_RIGHT.search(error.message):
        return InvalidInput(
            "peers", f"this worker may not connect a gang's pods: apply deploy/components/gangs ({error})"
        )
    if error.status == 404 and name:
        return PodUnreachable(name, "the pod is gone", sent=True)
    return PoolUnavailable(f"the gang cannot be connected: {error}")
