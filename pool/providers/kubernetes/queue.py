"""What stands in line at a Kueue queue, and how much of its quota is taken: read, never changed.

A count of pending workloads says little, since one may ask for one core and another for a thousand: what is asked for
stands in the workloads themselves, in those that have no quota reserved. Our own pods' are left out: they are not the
demand that our pods would have to make way for.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.policy.queue_share import QueueStanding
from emberpool.pool.providers.kubernetes.access import ApiRefused, KubernetesApi
from emberpool.pool.providers.kubernetes.injection import EMBERD
from emberpool.pool.providers.kubernetes.quantity import amount

log = logging.getLogger(__name__)

Json = Mapping[str, Any]
Amounts = Mapping[str, float]
"""By resource: cores, bytes, devices."""
API = "/apis/kueue.x-k8s.io/v1beta2"
PAGE = 500
ODD = (KeyError, TypeError, ValueError, AttributeError)
"""What reading something raises that is not as Kueue has it."""


class QueueFacts(Frozen):
    """One ClusterQueue at one moment."""

    waiting: int
    """Workloads of others that have no quota yet."""
    wanted: Amounts
    """What these ask for together."""
    quota: Amounts
    """Nominal, over all flavors."""
    reserved: Amounts
    """Taken of it, by anybody; may be more than the quota where it is borrowed."""
    reserved_by_us: Amounts
    """The part of it that pods of emberpool's have."""
    unread: tuple[str, ...] = ()
    """Workloads that are not as Kueue has them, each with what is wrong: they do not count."""

    def standing(self, resource: str) -> QueueStanding:
        """Of one resource.

        Raises:
            PoolUnavailable: the queue has no quota of it, not even none.
        """
        if resource not in self.quota:
            raise PoolUnavailable(f"its queue has no {resource}: have `resource` name one of {sorted(self.quota)}")
        return QueueStanding(
            quota=self.quota[resource],
            reserved=self.reserved.get(resource, 0.0),
            reserved_by_us=self.reserved_by_us.get(resource, 0.0),
            wanted=self.wanted.get(resource, 0.0),
        )


class KueueQueue:
    """One ClusterQueue, by name. Needs `get` on it and `list` on workloads and local queues of all namespaces."""

    def __init__(self, api: KubernetesApi, name: str) -> None:
        self._api, self._name = api, name

    async def look(self) -> QueueFacts:
        """How it stands now: one request, one for each 500 local queues of the cluster, and one for each 500 workloads
        of it, those that are over included, since a list cannot be narrowed by what a workload's status says. Not for
        anybody's hot path; summed in a thread.

        Raises:
            PoolUnavailable: the API cannot be reached, or refuses us; there may be no such queue, or an odd one.
        """
        try:
            queue = await self._api.call("GET", f"{API}/clusterqueues/{self._name}")
            local = await self._all("localqueues")
            workloads = await self._all("workloads")
            seen = await asyncio.to_thread(facts, queue, local, workloads)
        except (ApiRefused, *ODD) as error:
            said = str(error) if isinstance(error, ApiRefused) else f"{type(error).__name__} {error}"
            raise PoolUnavailable(f"Kueue's queue {self._name} cannot be read: {said}") from error
        if seen.unread:
            log.warning("%d workloads in queue %s do not count: %s", len(seen.unread), self._name, seen.unread[0])
        return seen

    async def _all(self, kind: str) -> list[Json]:
        found: list[Json] = []
        query = {"limit": str(PAGE)}
        while True:
            page = await self._api.call("GET", f"{API}/{kind}", query=query)
            found += page["items"]
            if not page["metadata"].get("continue"):
                return found
            query["continue"] = page["metadata"]["continue"]


def facts(queue: Json, local: Iterable[Json], workloads: Iterable[Json]) -> QueueFacts:
    """A ClusterQueue's facts from its JSON and that of all local queues and workloads: a pure function.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the queue is not as Kueue has it. (Of a workload: `unread`.)
    """
    name = queue["metadata"]["name"]
    ways_in = {_home(one) for one in local if one["spec"].get("clusterQueue") == name}
    waiting, ours = list[dict[str, Decimal]](), list[dict[str, Decimal]]()
    unread = list[str]()
    for one in workloads:
        try:
            if _line(one) in ways_in and _open(one) and _ours(one) is _has(one, "QuotaReserved"):
                (ours if _ours(one) else waiting).append(_asked(one))
        except ODD as error:
            unread.append(f"{one['metadata']['name']}: {type(error).__name__} {error}")
    flavors = [one for group in _list(queue["spec"], "resourceGroups") for one in group["flavors"]]
    quotas = [one for flavor in flavors for one in flavor["resources"]]
    used = [one for flavor in _list(queue.get("status") or {}, "flavorsReservation") for one in flavor["resources"]]
    return QueueFacts(
        waiting=len(waiting),
        wanted=_sum(waiting),
        quota=_sum({one["name"]: amount(str(one["nominalQuota"]))} for one in quotas),
        reserved=_sum({one["name"]: amount(str(one["total"]))} for one in used),
        reserved_by_us=_sum(ours),
        unread=tuple(unread),
    )


def _home(queue: Json) -> tuple[str, str]:
    return queue["metadata"]["namespace"], queue["metadata"]["name"]


def _line(workload: Json) -> tuple[str, str]:
    return workload["metadata"]["namespace"], workload["spec"].get("queueName") or ""


def _open(workload: Json) -> bool:
    """Whether it still wants or has anything: not over, not switched off."""
    return workload["spec"].get("active", True) and not _has(workload, "Finished")


def _has(workload: Json, condition: str) -> bool:
    conditions = _list(workload.get("status") or {}, "conditions")
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _ours(workload: Json) -> bool:
    """Whether its pods are emberpool's: Kueue hands on what they run, and none of their labels."""
    return any(
        EMBERD in _list(container, "command")
        for pod_set in workload["spec"]["podSets"]
        for container in pod_set["template"]["spec"]["containers"]
    )


def _asked(workload: Json) -> dict[str, Decimal]:
    """What all of its pods ask for together."""
    asked: dict[str, Decimal] = {}
    for pod_set in workload["spec"]["podSets"]:
        for name, one in _of_pod(pod_set["template"]["spec"]).items():
            asked[name] = asked.get(name, Decimal(0)) + one * pod_set["count"]
    return asked


def _of_pod(spec: Json) -> dict[str, Decimal]:
    """As Kubernetes counts: all containers together, or one that runs before them if that asks for more."""
    together: dict[str, Decimal] = {}
    for container in _list(spec, "containers"):
        for name, one in _of_container(container).items():
            together[name] = together.get(name, Decimal(0)) + one
    for container in _list(spec, "initContainers"):
        for name, one in _of_container(container).items():
            together[name] = max(together.get(name, Decimal(0)), one)
    overhead: Mapping[str, Any] = spec.get("overhead") or {}
    for name, text in overhead.items():
        together[name] = together.get(name, Decimal(0)) + amount(str(text))
    return together


def _of_container(container: Json) -> dict[str, Decimal]:
    """A limit without a request is a request."""
    resources: Json = container.get("resources") or {}
    limits: Json = resources.get("limits") or {}
    requests: Json = resources.get("requests") or {}
    return {name: amount(str(text)) for name, text in {**limits, **requests}.items()}


def _sum(parts: Iterable[Mapping[str, Decimal]]) -> dict[str, float]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, one in part.items():
            total[name] = total.get(name, Decimal(0)) + one
    return {name: float(one) for name, one in total.items()}


def _list(whole: Json, name: str) -> list[Any]:
    part: list[Any] | None = whole.get(name)
    return part or []
