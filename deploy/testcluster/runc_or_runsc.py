"""Stands in for runc where containerd's runc shim is to run gVisor: for tests, as gVisor's own shim is not to be had.

Called as `runc_or_runsc.py RUNC RUNSC ARGUMENTS OF RUNC...`. A pod's sandbox container goes to runc, every other to
runsc, and later commands follow a mark that lies beside runc's state.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TAKES_VALUE = {"--root", "--log", "--log-format", "--criu", "--rootless"}
SANDBOX = "sandbox"
OPTIONS = ["--network=host", "--overlay2=none", "--ignore-cgroups", "--platform=systrap"]
"""`host` is the network namespace of the pod. cgroups: runsc of 2024 knows no hybrid hierarchy."""
GONE = ("sandbox is not running", "container does not exist", "does not exist")


def split(words: list[str]) -> tuple[dict[str, str], str, list[str]]:
    """runc's global options, the command and what follows it."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if not equals and name in TAKES_VALUE:
            at += 1
            value = words[at]
        options[name] = value
        at += 1
    return options, words[at] if at < len(words) else "", words[at + 1 :]


def container(command: str, rest: list[str]) -> str:
    """Name of the container that a command is about: its last word, but for `kill`, where the signal follows."""
    last = -2 if command == "kill" and len(rest) > 1 else -1
    return rest[last] if rest else ""


def adopt(bundle: Path) -> bool:
    """Whether this bundle is for gVisor; its configuration is then rid of what makes runsc look for a sandbox."""
    path = bundle / "config.json"
    config = json.loads(path.read_text())
    annotations: dict[str, str] = config.get("annotations") or {}
    if annotations.get("io.kubernetes.cri.container-type") == SANDBOX:
        return False
    config["annotations"] = {
        name: value for name, value in annotations.items() if not name.startswith("io.kubernetes.cri.")
    }
    path.write_text(json.dumps(config))
    return True


def main(runc: str, runsc: str, words: list[str]) -> int:
    """Run the right one of the two."""
    options, command, rest = split(words)
    root = Path(options.get("--root") or "/run/runc")
    marks = root.with_name(root.name + "-marks")
    name = container(command, rest)
    mark = marks / name
    if command == "create":
        bundle = rest[rest.index("--bundle") + 1] if "--bundle" in rest else "."
        if adopt(Path(bundle)):
            marks.mkdir(parents=True, exist_ok=True)
            mark.touch()
    if not name or not mark.exists():
        os.execv(runc, [runc, *words])
    log = (
        ["--log", options["--log"], "--log-format", options.get("--log-format") or "text"] if "--log" in options else []
    )
    argv = [runsc, "--root", f"{root}-runsc", *log, *OPTIONS, command, *_known(command, rest)]
    if command not in ("kill", "delete"):
        os.execv(runsc, argv)
    return _end(argv, command, mark, options.get("--log"))


def _known(command: str, rest: list[str]) -> list[str]:
    """Without flags of runc that runsc does not know."""
    unknown = {"create": {"--no-pivot", "--no-new-keyring"}}.get(command, set())
    return [word for word in rest if word not in unknown]


def _end(argv: list[str], command: str, mark: Path, log: "str | None") -> int:
    done = subprocess.run(argv, capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    if command == "delete" and done.returncode == 0:
        mark.unlink()
    if command == "kill" and done.returncode and any(word in done.stderr for word in GONE):
        # The words by which the shim knows that there is nothing left to kill.
        if log:
            with open(log, "a") as file:
                file.write(json.dumps({"level": "error", "msg": "container not running"}) + "\n")
        sys.stderr.write("container not running\n")
        return 1
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
