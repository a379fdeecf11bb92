"""GPUs that are not there: a device plugin on the node's kubelet, for as long as a test wants it."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from testcluster.cluster import Cluster
from testcluster.kubelet import NODE
from testcluster.processes import wait_for

PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Where every kubelet looks for plugins, whatever its root folder is."""


@contextmanager
def plugged(
    cluster: Cluster,
    resource: str,
    uuids: Sequence[str],
    replicas: int = 1,
    mounts: Mapping[Path, str] | None = None,
) -> Generator[None]:
    """The node offers `resource`, each device `replicas` times; a container that has one also gets the mounts.

    Raises:
        NotUp: the kubelet does not take the plugin.
    """
    name = f"device-plugin-{resource.replace('/', '-')}"
    argv = [cluster.where.program("device-plugin"), f"--resource={resource}", f"--replicas={replicas}"]
    argv += [f"--device={uuid}" for uuid in uuids]
    argv += [f"--mount={source}:{target}" for source, target in (mounts or {}).items()]
    cluster.processes.start(name, argv)
    try:
        wait_for(f"{resource} on the node", lambda: _offered(cluster, resource) == len(uuids) * replicas, 30)
        yield
    finally:
        cluster.processes.stop(name)
        wait_for(f"{resource} off the node", lambda: _offered(cluster, resource) == 0, 30)


def _offered(cluster: Cluster, resource: str) -> int:
    node = json.loads(cluster.kubectl("get", "node", NODE, "-o", "json"))
    return int(node["status"]["allocatable"].get(resource, 0))
