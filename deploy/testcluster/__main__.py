"""`python -m testcluster check|install|build|up|down|status`: what the Makefile calls. `guard` is a cluster's own."""

import os
import sys
import time

from testcluster.build import CannotBuild, build, is_built
from testcluster.cluster import Cluster
from testcluster.folders import built
from testcluster.guard import GUARD, Owner
from testcluster.machine import description, install_tools, lacking_rights, missing_tools
from testcluster.processes import NotUp


def main(words: list[str]) -> int:
    """Exit status: 0 done, 1 `status` of a cluster that is down, 2 it cannot be."""
    command = words[0] if words else "status"
    cluster = Cluster(built())
    if command == "down":
        cluster.down()
        return 0
    if command == GUARD:
        owner = Owner(int(words[1]), words[2])
        owner.wait()
        cluster.down(of=owner)
        return 0
    if command == "status":
        print(f"up, KUBECONFIG={cluster.api.kubeconfig}" if cluster.is_up else "down")
        return 0 if cluster.is_up else 1
    if command == "install":
        install_tools()
        return 0
    if os.environ.get("KUBECONFIG"):
        print(f"KUBECONFIG is set: {os.environ['KUBECONFIG']} is used, and nothing is started")
        return 0
    if not _can_be():
        return 2
    try:
        if command != "check":
            build(built())
        if command == "up":
            start(cluster)
    except (CannotBuild, NotUp) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _can_be() -> bool:
    """Whether the cluster can be on this machine; says what was found."""
    print(f"this machine: {description()}", flush=True)
    tools = missing_tools()
    lacking = [tools] if tools else [f"the test cluster needs what is not had here: {one}" for one in lacking_rights()]
    for one in lacking:
        print(f"error: {one}", file=sys.stderr)
    if not lacking:
        state = "it is built" if is_built(built()) else "it is to be built, some 13 minutes on two idle cores"
        print(f"all that the test cluster needs is here; {state}", flush=True)
    return not lacking


def start(cluster: Cluster) -> None:
    """Start it to stay, unless it is up; says where it is, and whom it goes with if it is a test run's.

    Raises:
        NotUp: a part does not come up.
    """
    began = time.monotonic()
    cluster.up()
    print(f"up after {time.monotonic() - began:.1f} s, KUBECONFIG={cluster.api.kubeconfig}")
    owner = Owner.of(cluster.folder)
    if owner is not None:
        print(f"it was started for process {owner.pid}, and goes down with it: start it again then, if it is to stay")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
