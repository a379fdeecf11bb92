"""Addresses of the cluster: all of them are this machine's own and reach nobody else."""

import json
import socket
import subprocess
from pathlib import Path

BRIDGE = "ember0"
NODE_ADDRESS = "10.91.0.1"
"""The bridge's address: the node's, for exec and logs, and the pods' gateway."""
POD_RANGE = "10.91.0.0/16"
CNI_CONFIG = {
    "cniVersion": "1.0.0",
    "name": "testcluster",
    "plugins": [
        {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            # No way out: pods reach each other and this machine.
            "ipMasq": False,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_bridge() -> None:
    """Make the bridge before the first pod, since the node's address is on it. Idempotent."""
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{NODE_ADDRESS}/16", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")


def remove_bridge() -> None:
    """Remove it. Idempotent."""
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        _ip("link", "del", BRIDGE)


def write_cni(folder: Path, data: Path) -> None:
    """The configuration that containerd hands to the plugins; addresses in use are noted in `data`."""
    folder.mkdir(parents=True)
    text = json.dumps(CNI_CONFIG)
    config = json.loads(text)
    config["plugins"][0]["ipam"]["dataDir"] = str(data)
    (folder / "10-testcluster.conflist").write_text(json.dumps(config))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
