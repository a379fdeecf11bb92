"""What kwok does with nodes and pods: its own fast stages, with two things of ours."""

import json
import re
from pathlib import Path

PARALLEL = 16
"""Pods that it changes at once. Its own four wait for each other where the API server is busy."""
_ADDRESSES = re.compile(r"\{\{ \$podIPs := .*?(?=\n *phase: Running)", re.DOTALL)


def write_kwok_config(stages: Path, path: Path) -> Path:
    """Write its configuration.

    Its pods have no address here: those that it makes up are somebody's, whom workers would ask for an emberd.

    Raises:
        ValueError: its stage for running pods is not as it was.
    """
    text, changed = _ADDRESSES.subn("", stages.read_text())
    if changed != 1:
        raise ValueError(f"{stages} gives addresses to pods in {changed} places, not in one")
    about = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        # A configuration that names one has no defaults for the others.
        "options": {
            "podPlayStageParallelism": PARALLEL,
            "nodePlayStageParallelism": PARALLEL,
            "nodeLeaseParallelism": PARALLEL,
            "nodeLeaseDurationSeconds": 40,
            "podsOnNodeSyncParallelism": 1,
        },
    }
    path.write_text(f"{text}\n---\n{json.dumps(about)}\n")
    return path
