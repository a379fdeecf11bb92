"""deploy/base and every overlay as a real API server takes them, and what they say to the workers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures.abridged_crds import KAI_QUEUE, POD_MONITORING
from fixtures.cluster import ClusterUp
from testcluster.cluster import Cluster
from testcluster.crds import KUEUE, PROMETHEUS, objects

from emberpool.pool.model.profile import parse_profiles
from emberpool.worker.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACES = ("emberpool", "emberpool-sandboxes")
KUSTOMIZATIONS = ["base", *(f"overlays/{path.name}" for path in sorted((DEPLOY / "overlays").iterdir()))]
ADDED: dict[str, tuple[set[str], set[str]]] = {
    "emberd-tls": (set(), {"EMBERPOOL_TLS_CA_FILE"}),
    "gangs": ({"Role/emberpool-gangs", "RoleBinding/emberpool-gangs"}, set()),
    "gvisor": ({"RuntimeClass/gvisor"}, set()),
    "prometheus": ({"ServiceMonitor/emberpool-worker"}, set()),
    "redis": ({"Deployment/emberpool-redis", "Service/emberpool-redis", "Secret/emberpool-redis"}, set()),
}
"""What each component adds to the base: objects, and variables of the workers."""
COMPONENTS = sorted(ADDED)
SUFFIX = "-try"
NAMED_CRDS = {
    "overlays/gke": ["podmonitorings.monitoring.googleapis.com"],
    "overlays/kai": ["queues.scheduling.run.ai", "components/prometheus"],
    "overlays/kueue": ["clusterqueues", "localqueues", "resourceflavors", "components/prometheus"],
    "components/prometheus": ["servicemonitors"],
}
"""What the head of a kustomization must name, so that nobody is surprised by `no matches for kind`."""


@pytest.fixture(scope="module")
def cluster_with_crds(cluster: ClusterUp) -> Iterator[Cluster]:
    """With the two namespaces, and the kinds that overlays need; all of it goes with the module."""
    own = cluster.own
    if own is None:
        pytest.skip("definitions are made in a cluster of our own only")
    kinds: list[Any] = [KAI_QUEUE, POD_MONITORING, *objects(KUEUE), *objects(PROMETHEUS)]
    own.apply(kinds)
    own.fresh(*NAMESPACES)
    own.apply(list(yaml.safe_load_all((DEPLOY / "base" / "namespaces.yaml").read_text())))
    names = [one["metadata"]["name"] for one in kinds]
    own.kubectl("wait", "--for=condition=Established", "--timeout=60s", *(f"crd/{name}" for name in names))
    yield own
    own.kubectl("delete", "namespace", *NAMESPACES, "--wait=false")
    own.kubectl("delete", "crd", *names)


@pytest.mark.cluster
@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_the_api_server_takes_all_of_it(cluster_with_crds: Cluster, name: str) -> None:
    """`kubectl apply -k`, as a dry run on the server: every object is known, valid to the last field, and admitted."""
    words = ["--dry-run=server", "--validate=strict", "-o", "name", "-k", str(DEPLOY / name)]
    said = cluster_with_crds.kubectl("apply", *words).split()
    for kind in ("deployment.apps", "poddisruptionbudget.policy", "horizontalpodautoscaler.autoscaling"):
        assert f"{kind}/emberpool-worker" in said, said
    assert "priorityclass.scheduling.k8s.io/emberpool-sandbox" in said


@pytest.mark.cluster
@pytest.mark.parametrize("name", COMPONENTS)
def test_each_component_goes_on_the_base(cluster_with_crds: Cluster, tmp_path: Path, name: str) -> None:
    """As an overlay of a user's own adds it: the API server takes what it adds, and what it changes of the workers."""
    paths = {"resources": ["base"], "components": [f"components/{name}"]}
    overlay = {key: [os.path.relpath(DEPLOY / path, tmp_path) for path in some] for key, some in paths.items()}
    # Under names of its own: the test cluster has a RuntimeClass gvisor, whose handler may not change.
    (tmp_path / "kustomization.yaml").write_text(json.dumps({**overlay, "nameSuffix": SUFFIX}))
    words = ["--dry-run=server", "--validate=strict", "-o", "json", "-k", str(tmp_path)]
    said = json.loads(cluster_with_crds.kubectl("apply", *words))["items"]
    added, env = ADDED[name]
    there = {f"{one['kind']}/{_plain(one)}" for one in said}
    assert added <= there, sorted(there)
    (worker,) = [one for one in said if one["kind"] == "Deployment" and _plain(one) == "emberpool-worker"]
    names = {one["name"] for one in worker["spec"]["template"]["spec"]["containers"][0].get("env", [])}
    assert env <= names, names


def _plain(one: dict[str, Any]) -> str:
    """The name without what kustomize adds: our suffix, and a hash of contents."""
    name: str = one["metadata"]["name"]
    return name.partition(SUFFIX)[0]


def test_every_component_is_tried() -> None:
    """What is in the folder is what the test above knows."""
    assert sorted(path.name for path in (DEPLOY / "components").iterdir()) == COMPONENTS


@pytest.mark.parametrize("name", NAMED_CRDS)
def test_needed_definitions_are_named(name: str) -> None:
    """In the comment at the head of the file that one reads before applying it."""
    text = (DEPLOY / name / "kustomization.yaml").read_text()
    head = text.partition("apiVersion:")[0]
    assert [word for word in NAMED_CRDS[name] if word not in head] == []


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_workers_can_read_what_they_are_given(name: str) -> None:
    """Profiles are valid; every variable of the base is a setting or Temporal's own."""
    assert parse_profiles((DEPLOY / name / "profiles.yaml").read_text())
    lines = (DEPLOY / "base" / "worker.env").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines}
    known = {f"EMBERPOOL_{field.upper()}" for field in Settings.model_fields}
    assert {one for one in names if not one.startswith("TEMPORAL_")} <= known
