"""The kubelet of this machine: the one real node."""

import json
import os
from pathlib import Path

from testcluster.api import Api
from testcluster.containerd import Containerd
from testcluster.folders import Built
from testcluster.network import NODE_ADDRESS, free_port
from testcluster.processes import Processes

NODE = "real"
"""Name of the node whose pods really run."""
MOST_PODS = 200


def kubelet_config(folder: Path, api: Api, containerd: Containerd) -> dict[str, object]:
    """What a kubelet needs on a machine with cgroup v1 and without CAP_SYS_RESOURCE; harmless elsewhere."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": free_port(),
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(api.kubelet_certificate)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{containerd.socket}",
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "kubelet" / "plugins"),
        "maxPods": MOST_PODS,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # Its own machine is small, and what else fills the disk is none of the cluster's business.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        # How soon the node offers devices of a plugin, or no longer; and how often it is heard of without news.
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "5s",
        "clusterDomain": "cluster.local",
    }


def start_kubelet(where: Built, folder: Path, processes: Processes, api: Api, containerd: Containerd) -> None:
    """Start it; it registers the node itself."""
    home = folder / "kubelet"
    home.mkdir()
    config = home / "config.json"
    config.write_text(json.dumps(kubelet_config(folder, api, containerd)))
    options = {
        "config": config,
        "kubeconfig": api.kubeconfig,
        "hostname-override": NODE,
        "node-ip": NODE_ADDRESS,
        "root-dir": home / "root",
        "cert-dir": home / "certificates",
        "v": 2,
    }
    argv = [where.program("kubelet"), *(f"--{name}={value}" for name, value in options.items())]
    processes.start("kubelet", argv, {"PATH": f"{where.programs}:{os.environ['PATH']}"})
