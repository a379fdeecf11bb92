"""NetworkPolicies enforced on the node's bridge by nftables: no network plugin that does it can be had here.

As much of them as we use: selection by labels, ports of TCP and UDP. The bridge tracks no connections, so that
whatever does not open one passes: a TCP segment without SYN is of a connection that was allowed, or of none. Of UDP
each datagram needs a rule for its own port, an answer too. All else of a pod that a policy isolates (ICMP, IPv6) is
dropped. Rules name addresses: apply them again when pods have changed.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from testcluster.folders import Built

TABLE = "emberpool_testcluster"
Json = Mapping[str, Any]


class Unsupported(Exception):
    """A policy says what this cannot enforce: better none than a wrong one."""


class Rules:
    """The table of rules, in the kernel."""

    def __init__(self, where: Built, kubectl: Callable[..., str]) -> None:
        self._where, self._kubectl = where, kubectl

    def apply(self) -> None:
        """Enforce every policy that the API server has now, for the pods that it has now."""
        said = self._kubectl("get", "networkpolicies,pods,namespaces", "--all-namespaces", "-o", "json")
        found: dict[str, list[Json]] = {"NetworkPolicy": [], "Pod": [], "Namespace": []}
        for one in json.loads(said)["items"]:
            found[one["kind"]].append(one)
        namespaces = {str(one["metadata"]["name"]): one for one in found["Namespace"]}
        self._nft(ruleset(found["NetworkPolicy"], found["Pod"], namespaces))

    def remove(self) -> None:
        """Let everything pass again. Idempotent."""
        if os.path.exists(self._where.nft):
            self._nft(f"table bridge {TABLE}\ndelete table bridge {TABLE}\n")

    def _nft(self, text: str) -> None:
        env = {**os.environ, "LD_LIBRARY_PATH": self._where.libraries}
        subprocess.run([self._where.nft, "-f", "-"], input=text, text=True, check=True, capture_output=True, env=env)


def ruleset(policies: Sequence[Json], pods: Sequence[Json], namespaces: Mapping[str, Json]) -> str:
    """nftables' text for these policies: a pure function.

    Raises:
        Unsupported: a policy uses what is not known here.
    """
    running = [pod for pod in pods if pod["status"].get("podIP") and not pod["spec"].get("hostNetwork")]
    shut: dict[str, list[str]] = {"Ingress": [], "Egress": []}
    allowed: dict[str, list[str]] = {"Ingress": [], "Egress": []}
    for policy in policies:
        spec, home = policy["spec"], str(policy["metadata"]["namespace"])
        chosen = _addresses(running, spec["podSelector"], home.__eq__)
        for way, field, here, there in (
            ("Ingress", "ingress", "daddr", "saddr"),
            ("Egress", "egress", "saddr", "daddr"),
        ):
            if way not in spec["policyTypes"]:
                continue
            shut[way] += chosen
            rules: list[Json] = spec.get(field) or []
            for rule in rules:
                peers = _peers(running, rule.get("from" if way == "Ingress" else "to"), home, namespaces)
                if chosen and peers:
                    allowed[way] += [
                        f"ip {here} {_set(chosen)} ip {there} {_set(peers)} {port} return" for port in _ports(rule)
                    ]
    return _text(shut, allowed)


def _text(shut: Mapping[str, Iterable[str]], allowed: Mapping[str, Sequence[str]]) -> str:
    lines = [f"table bridge {TABLE}", f"delete table bridge {TABLE}", f"table bridge {TABLE} {{"]
    checks = ["ether type ip6 drop", "ether type != ip accept", "tcp flags & (syn|ack) != syn accept"]
    for way, place in (("Egress", "saddr"), ("Ingress", "daddr")):
        addresses = sorted(set(shut[way]))
        lines += [f"chain {way} {{", *allowed[way], "drop", "}"]
        if addresses:
            checks.append(f"ip {place} {_set(addresses)} jump {way}")
    for hook in ("forward", "input"):
        lines += [f"chain {hook} {{", f"type filter hook {hook} priority 0; policy accept;", *checks, "}"]
    return "\n".join([*lines, "}", ""])


def _peers(pods: Sequence[Json], peers: Sequence[Json] | None, home: str, namespaces: Mapping[str, Json]) -> list[str]:
    if not peers:
        raise Unsupported("a rule without peers means anybody: write it so that it names them")
    found: list[str] = []
    for peer in peers:
        if unknown := peer.keys() - {"podSelector", "namespaceSelector"}:
            raise Unsupported(f"a peer by {sorted(unknown)}")
        where: Json | None = peer.get("namespaceSelector")

        def inside(name: str, where: Json | None = where) -> bool:
            return name == home if where is None else _matches(where, namespaces[name])

        found += _addresses(pods, peer.get("podSelector") or {}, inside)
    return found


def _addresses(pods: Sequence[Json], selector: Json, inside: Callable[[str], bool]) -> list[str]:
    chosen = [pod for pod in pods if inside(pod["metadata"]["namespace"]) and _matches(selector, pod)]
    return [str(pod["status"]["podIP"]) for pod in chosen]


def _matches(selector: Json, what: Json) -> bool:
    if unknown := selector.keys() - {"matchLabels"}:
        raise Unsupported(f"a selector by {sorted(unknown)}")
    labels: Json = what["metadata"].get("labels") or {}
    wanted: Json = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items()


def _ports(rule: Json) -> list[str]:
    """As nftables' expressions."""
    ports: list[Json] = rule.get("ports") or []
    known = {"TCP": "tcp", "UDP": "udp"}
    if not ports or any(_protocol(one) not in known or not isinstance(one.get("port"), int) for one in ports):
        raise Unsupported(f"ports {ports}: only ports of TCP and UDP by number are known")
    return [f"{known[_protocol(one)]} dport {_range(one)}" for one in ports]


def _protocol(port: Json) -> str:
    return str(port.get("protocol", "TCP"))


def _range(port: Json) -> str:
    return f"{port['port']}-{port['endPort']}" if "endPort" in port else str(port["port"])


def _set(addresses: Iterable[str]) -> str:
    return "{ " + ", ".join(sorted(set(addresses))) + " }"
