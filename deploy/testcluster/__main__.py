"""`python -m testcluster build|up|down|status`: what the Makefile calls."""

import os
import sys
import time

from testcluster.build import CannotBuild, build
from testcluster.cluster import Cluster
from testcluster.folders import built
from testcluster.processes import NotUp


def main(words: list[str]) -> int:
    """Exit status: 0 done, 1 `status` of a cluster that is down, 2 it cannot be."""
    command = words[0] if words else "status"
    cluster = Cluster(built())
    if command == "down":
        cluster.down()
        return 0
    if command == "status":
        print(f"up, KUBECONFIG={cluster.api.kubeconfig}" if cluster.is_up else "down")
        return 0 if cluster.is_up else 1
    if os.environ.get("KUBECONFIG"):
        print(f"KUBECONFIG is set: {os.environ['KUBECONFIG']} is used, and nothing is started")
        return 0
    try:
        build(built())
        if command == "up":
            _up(cluster)
    except (CannotBuild, NotUp) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _up(cluster: Cluster) -> None:
    began = time.monotonic()
    if not cluster.is_up:
        cluster.up()
    print(f"up after {time.monotonic() - began:.1f} s, KUBECONFIG={cluster.api.kubeconfig}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
