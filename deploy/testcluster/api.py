"""The API server, its etcd, and how everything else reaches them."""

import json
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from testcluster.folders import Built
from testcluster.network import NODE_ADDRESS, free_port
from testcluster.processes import Processes

PROGRAM = "kube-apiserver"
SERVICE_RANGE = "10.92.0.0/24"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
"""One line per request, without bodies: tests count who called what."""


class Api:
    """One API server on loopback."""

    def __init__(self, where: Built, folder: Path, processes: Processes) -> None:
        self._where, self._processes = where, processes
        self.folder = folder / "api"
        self.kubeconfig = folder / "kubeconfig"
        self.audit_log = folder / "audit.log"

    @property
    def kubelet_certificate(self) -> Path:
        """What the API server shows to kubelets, which trust nothing else."""
        return self.folder / "kubelet-client.crt"

    def start(self) -> None:
        """Start etcd and the API server, and wait until it is ready.

        Raises:
            NotUp: one of them does not come up.
        """
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o700)
        etcd = f"http://127.0.0.1:{self._start_etcd()}"
        port, token = free_port(), secrets.token_hex(16)
        self._write_secrets(token)
        self._processes.start(PROGRAM, self._argv(etcd, port))
        certificate = self.folder / "apiserver.crt"
        self._processes.wait(PROGRAM, lambda: certificate.exists() and self._ready(port, token), 60)
        self._write_kubeconfig(port, token)

    def kill(self) -> list[str]:
        """Kill the API server, as if its machine had failed. Its etcd runs on, and whoever called it is left waiting.

        Returns:
            What `revive` starts it by: another command may have started this one.
        """
        argv = self._processes.argv(PROGRAM)
        self._processes.stop(PROGRAM, 0.0)
        return argv

    def revive(self, argv: list[str]) -> None:
        """Start the API server again, at its old address and on its old state, and wait until it is ready.

        Raises:
            NotUp: it does not come up.
        """
        config = json.loads(self.kubeconfig.read_text())
        port = int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        token = config["users"][0]["user"]["token"]
        self._processes.start(PROGRAM, argv)
        self._processes.wait(PROGRAM, lambda: self._ready(port, token), 60)

    def _start_etcd(self) -> int:
        client, peer = f"http://127.0.0.1:{(port := free_port())}", f"http://127.0.0.1:{free_port()}"
        argv = [self._where.etcd, "--data-dir", str(self.folder / "etcd"), "--name", "one", "--unsafe-no-fsync"]
        argv += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        argv += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", "--log-level", "warn"]
        self._processes.start("etcd", argv)
        return port

    def _write_secrets(self, token: str) -> None:
        (self.folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        (self.folder / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY))
        key = ["openssl", "genrsa", "-out", str(self.folder / "accounts.key"), "2048"]
        subprocess.run(key, check=True, capture_output=True)
        pair = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=apiserver"]
        pair += ["-keyout", str(self.folder / "kubelet-client.key"), "-out", str(self.kubelet_certificate)]
        subprocess.run(pair, check=True, capture_output=True)

    def _argv(self, etcd: str, port: int) -> list[str]:
        options = {
            "etcd-servers": etcd,
            "secure-port": port,
            "bind-address": "127.0.0.1",
            "advertise-address": NODE_ADDRESS,
            # Endpoints would name the address above, where nobody listens.
            "endpoint-reconciler-type": "none",
            "cert-dir": self.folder,
            "token-auth-file": self.folder / "tokens.csv",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self.folder / "accounts.key",
            "service-account-signing-key-file": self.folder / "accounts.key",
            "service-cluster-ip-range": SERVICE_RANGE,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": self.kubelet_certificate,
            "kubelet-client-key": self.folder / "kubelet-client.key",
            # Debian's etcd 3.4 cannot serve lists as watches, which the API server makes of every watch from version 0:
            # kwok's all do. They would end at once, and be tried again after up to a minute; leases that are renewed by
            # what was heard before are refused meanwhile, so that the simulated nodes would not be ready now and then.
            "feature-gates": "WatchList=false",
            "audit-log-path": self.audit_log,
            "audit-policy-file": self.folder / "audit-policy.yaml",
        }
        return [self._where.program(PROGRAM), *(f"--{name}={value}" for name, value in options.items())]

    def _ready(self, port: int, token: str) -> bool:
        request = urllib.request.Request(
            f"https://127.0.0.1:{port}/readyz", headers={"Authorization": f"Bearer {token}"}
        )
        try:
            context = ssl.create_default_context(cafile=str(self.folder / "apiserver.crt"))
            with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                return int(answer.status) == 200
        except (urllib.error.URLError, OSError):
            return False

    def _write_kubeconfig(self, port: int, token: str) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testcluster",
            "clusters": [
                {
                    "name": "testcluster",
                    "cluster": {
                        "server": f"https://127.0.0.1:{port}",
                        "certificate-authority": str(self.folder / "apiserver.crt"),
                    },
                }
            ],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "testcluster", "context": {"cluster": "testcluster", "user": "admin"}}],
        }
        self.kubeconfig.touch()
        self.kubeconfig.chmod(0o600)
        self.kubeconfig.write_text(json.dumps(config))
