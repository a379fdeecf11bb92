"""Compare a wheel with git: each file of the package that git does not ignore, once, at its place, and nothing else.

Usage: python .ci/wheel_is_git.py FILE.whl
"""

import subprocess
import sys
import zipfile
from pathlib import Path

FOLDERS = ("workflows", "activities", "pool", "worker")
ROOT = "src/emberpool/"


def expected() -> dict[str, bytes]:
    """Path in the wheel to content, of every file of the package."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    files: dict[str, bytes] = {}
    for name in filter(None, listed.split("\0")):
        path = Path(name)
        if path.is_symlink() or not path.exists():
            continue
        if name.startswith(ROOT):
            files["emberpool/" + name.removeprefix(ROOT)] = path.read_bytes()
        elif path.parts[0] in FOLDERS:
            files["emberpool/" + name] = path.read_bytes()
    return files


def packed(wheel: Path) -> dict[str, bytes]:
    """Path to content, of every file in the wheel but its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        return {name: archive.read(name) for name in names}


def main() -> int:
    """Say what differs; exit status 1 if anything does."""
    wanted, found = expected(), packed(Path(sys.argv[1]))
    problems = [f"missing in the wheel: {name}" for name in sorted(wanted.keys() - found.keys())]
    problems += [f"not in git: {name}" for name in sorted(found.keys() - wanted.keys())]
    problems += [f"differs: {name}" for name in sorted(wanted.keys() & found.keys()) if wanted[name] != found[name]]
    print("\n".join(problems) or f"{len(found)} files, the same in both")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
