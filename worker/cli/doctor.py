"""`emberpool doctor`: what this machine can run, found by looking and trying."""

import os
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from emberpool.pool.providers.local.host import HostReport, inspect_host
from emberpool.worker.cli.output import console, print_json
from emberpool.worker.stack.errors import StackError

OK, WARN, FAIL, INFO = "ok", "warn", "fail", "info"
STYLE = {OK: "green", WARN: "yellow", FAIL: "red bold", INFO: "dim"}


@dataclass(frozen=True)
class Finding:
    """One line of the report. Only `fail` means that nothing can run."""

    topic: str
    verdict: str
    text: str
    remedy: str = ""


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the report for machines.")] = False,
) -> None:
    """Say what this machine can run, and which isolation pods get. Exit status 1 if nothing can run.

    [bold]Example[/bold]

      emberpool doctor --json | jq .isolation
    """
    host = inspect_host()
    findings = [*_servers(), *_isolation(host), *_machine(host)]
    failed = any(finding.verdict == FAIL for finding in findings)
    if as_json:
        isolation = host.isolation.value if host.isolation else None
        print_json(
            {
                "ok": not failed,
                "isolation": isolation,
                "why": host.why,
                "findings": [asdict(finding) for finding in findings],
                "host": host.model_dump(mode="json"),
            }
        )
    else:
        _show(findings, failed, host)
    raise typer.Exit(1 if failed else 0)


def _show(findings: list[Finding], failed: bool, host: HostReport) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = Text(finding.text)
        if finding.remedy:
            text.append(f"\nremedy: {finding.remedy}", style="bold")
        table.add_row(Text(finding.verdict, style=STYLE[finding.verdict]), finding.topic, text)
    out = console()
    out.print(table)
    if failed:
        out.print("[red bold]nothing can run here yet[/]: see the remedies above")
    else:
        isolation = host.isolation.value if host.isolation else "none"
        out.print(f"[green]ready[/]: pods get isolation [bold]{isolation}[/]; try [bold]emberpool demo[/]")


def _servers() -> list[Finding]:
    from emberpool.worker.stack.redis_server import find_redis
    from emberpool.worker.stack.temporal_server import find_temporal

    return [
        _server("Temporal", find_temporal, "TEMPORAL_ADDRESS"),
        _server("Redis", find_redis, "EMBERPOOL_REDIS_URL"),
    ]


def _server(topic: str, find: Callable[[], Path], variable: str) -> Finding:
    if os.environ.get(variable):
        return Finding(topic, OK, f"the server that {variable} names")
    try:
        program = find()
    except StackError as error:
        return Finding(topic, FAIL, error.cause, error.remedy)
    version = _first_line(str(program), "--version")
    if not version:
        return Finding(topic, FAIL, f"{program} does not run", f"reinstall it, or set {variable}")
    return Finding(topic, OK, f"{program} ({_short(version)})")


def _isolation(host: HostReport) -> list[Finding]:
    namespaces = Finding("user namespaces", OK if host.user_namespaces else WARN, host.user_namespaces_why)
    tried = [
        Finding("bubblewrap", OK if bwrap.usable else WARN, f"{bwrap.path} {bwrap.version}: {bwrap.problem or 'runs'}")
        for bwrap in host.bwraps
    ]
    if host.isolation is None:
        remedy = "allow user namespaces; or set `isolation: plain` in the profile, for trusted code only"
        return [namespaces, *tried, Finding("isolation", FAIL, host.why, remedy)]
    return [namespaces, *tried, Finding("isolation", OK, f"{host.isolation.value}: {host.why}")]


def _machine(host: HostReport) -> list[Finding]:
    user = "root: each pod gets an unprivileged uid of its own" if host.root else "not root: pods run as this user"
    return [
        Finding("user", INFO, user),
        Finding("pods' Python", OK if host.python_version else WARN, f"{host.python} ({host.python_version})"),
        Finding("cores, kernel", INFO, f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"),
        Finding("cgroups", INFO, f"version {host.cgroup_version}" if host.cgroup_version else "none mounted"),
        Finding("gVisor", INFO, host.runsc or "not found; local pods do not need it"),
        Finding("GPUs", INFO, ", ".join(host.gpus) or "none found"),
    ]


def _first_line(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20.0, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(done.stdout.splitlines()), "") if done.returncode == 0 else ""


def _short(version: str) -> str:
    found = re.search(r"\d+(\.\d+)+", version)
    return found.group() if found else version
