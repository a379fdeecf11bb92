"""deploy/base by itself: what workers may do to their node, who may call them, and what holds up nobody."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from emberpool.worker.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
METRICS_PORT = 9464
PLACES = {"resources": "base", "components": "components/emberd-tls"}


def objects(kind: str) -> list[dict[str, Any]]:
    """The base's, of one kind."""
    texts = [path.read_text() for path in sorted((DEPLOY / "base").glob("*.yaml")) if path.name != "profiles.yaml"]
    found: list[dict[str, Any]] = [one for text in texts for one in yaml.safe_load_all(text) if one]
    return [one for one in found if one["kind"] == kind]


def pod_spec() -> dict[str, Any]:
    """Of the workers."""
    (deployment,) = objects("Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_they_meet_the_strictest_standard() -> None:
    """Nobody's user, no capability, no way to more, a read-only root, the runtime's filter; probes, and limits of what
    they take."""
    spec = pod_spec()
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]
    standards = {one["metadata"]["name"]: one["metadata"]["labels"] for one in objects("Namespace")}
    assert standards["emberpool"]["pod-security.kubernetes.io/enforce"] == "baseline"


def test_only_who_scrapes_metrics_may_call_them() -> None:
    """A policy chooses them, so that nothing else comes in, and its one rule names namespaces and the metrics' port."""
    policies = [one for one in objects("NetworkPolicy") if one["metadata"]["namespace"] == "emberpool"]
    (policy,) = policies
    labels = objects("Deployment")[0]["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"port": METRICS_PORT, "protocol": "TCP"}]
    assert [list(peer) for peer in rule["from"]] == [["namespaceSelector"]]
    assert f"EMBERPOOL_METRICS_ADDRESS=0.0.0.0:{METRICS_PORT}" in (DEPLOY / "base" / "worker.env").read_text()


def test_a_worker_that_is_not_ready_holds_up_no_drain() -> None:
    """Else a node could not be emptied while Redis is away."""
    (budget,) = objects("PodDisruptionBudget")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, which has kustomize in it")
def test_the_component_for_tls_gives_workers_an_authority(tmp_path: Path) -> None:
    """On top of the base: the ConfigMap is mounted where the setting says."""
    places = {name: [os.path.relpath(DEPLOY / path, tmp_path)] for name, path in PLACES.items()}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(places))
    made = subprocess.run(["kubectl", "kustomize", str(tmp_path)], check=True, capture_output=True, timeout=60).stdout
    (deployment,) = (one for one in yaml.safe_load_all(made) if one["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert "tls_ca_file" in Settings.model_fields
    assert env["EMBERPOOL_TLS_CA_FILE"] == f"{mounts['emberd-ca']}/ca.crt"
    assert volumes["emberd-ca"]["configMap"]["name"] == "emberpool-emberd-ca"
    assert {"profiles", "pool-key", "tmp"} <= volumes.keys(), "what the base mounts stays"
