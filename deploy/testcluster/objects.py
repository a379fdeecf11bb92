"""What stands in the API from the start: runtime classes, simulated nodes."""

RUNTIME_CLASSES = ("runc", "gvisor")
FAKE = "kwok.x-k8s.io/node"
"""Annotation and taint of nodes that kwok simulates."""


def runtime_class(name: str) -> dict[str, object]:
    """A runtime class of containerd's runtime with the same name."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": name,
        "scheduling": {"nodeSelector": {"kubernetes.io/hostname": "real"}} if name == "gvisor" else {},
    }


def fake_node(name: str, cpu: str = "64", memory: str = "256Gi", pods: str = "500") -> dict[str, object]:
    """A node that kwok keeps ready. Tainted, so that no pod lands there that does not mean to."""
    capacity = {"cpu": cpu, "memory": memory, "pods": pods}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {FAKE: "fake"}, "labels": labels},
        "spec": {"taints": [{"key": FAKE, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": capacity, "capacity": capacity},
    }
