"""What the test cluster is built from lies in the repository: a clone can build it."""

import subprocess

from testcluster.pins import BUILD, PROGRAMS


def test_every_module_is_there_and_not_ignored() -> None:
    """A go.mod for each group of programs, a go.sum unless it needs none, and no rule of git's leaves one out."""
    modules = sorted({program.module for program in PROGRAMS})
    files = [BUILD / name / "go.mod" for name in modules]
    files += [BUILD / name / "go.sum" for name in modules if name != "pause"]
    assert [str(path) for path in files if not path.exists()] == []
    ignored = subprocess.run(["git", "check-ignore", "--no-index", *map(str, files)], cwd=BUILD, capture_output=True)
    assert (ignored.returncode, ignored.stdout) == (1, b""), "1 means that none is ignored"
