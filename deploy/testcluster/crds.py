"""Custom resource definitions that overlays need, as their projects publish them: from the Go module proxy, pinned."""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Definitions:
    """Files of one module."""

    module: str
    sum: str
    """As `go mod download` tells it: a hash of every file of the module."""
    files: tuple[str, ...]


KUEUE = Definitions(
    "sigs.k8s.io/kueue@v0.17.0",
    "h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I=",
    tuple(
        f"config/components/crd/bases/kueue.x-k8s.io_{name}.yaml"
        for name in (
            "admissionchecks",
            "clusterqueues",
            "cohorts",
            "localqueues",
            "multikueueclusters",
            "multikueueconfigs",
            "provisioningrequestconfigs",
            "resourceflavors",
            "topologies",
            "workloadpriorityclasses",
            "workloads",
        )  # fmt: skip
    ),
)
PROMETHEUS = Definitions(
    "github.com/prometheus-operator/prometheus-operator@v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    ("example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",),
)


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Without libyaml the megabytes of Kueue's take ten times as long."""


def objects(of: Definitions) -> list[dict[str, Any]]:
    """What is in the files.

    Raises:
        RuntimeError: the module cannot be had, or is not the one that is pinned.
    """
    return [one for path in definitions(of) for one in yaml.load_all(path.read_text(), Loader=_Loader) if one]


def definitions(of: Definitions) -> list[Path]:
    """The files, downloaded if Go's cache has them not.

    Raises:
        RuntimeError: the module cannot be had, or is not the one that is pinned.
    """
    argv = ["nice", "-n", "19", "go", "mod", "download", "-json", of.module]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, env={**os.environ, "GOWORK": "off"})
    if done.returncode:
        raise RuntimeError(f"{of.module}: {(done.stdout + done.stderr)[-1000:]}")
    told = json.loads(done.stdout)
    if told["Sum"] != of.sum:
        raise RuntimeError(f"{of.module} has the sum {told['Sum']}, the pin says {of.sum}")
    return [Path(told["Dir"]) / name for name in of.files]
