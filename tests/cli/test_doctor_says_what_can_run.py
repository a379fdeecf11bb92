"""`emberpool doctor`: what was found and tried, and whether anything can run."""

import json
import os
from pathlib import Path

from fixtures.command_line import emberpool

from emberpool.pool.providers.local.host import inspect_host


def test_it_says_what_the_host_says(tmp_path: Path) -> None:
    """Isolation and reason are those that pods will get; the exit status says whether anything can run."""
    host = inspect_host()
    done = emberpool("doctor", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["isolation"] == (host.isolation.value if host.isolation else None)
    assert report["why"] == host.why
    assert done.returncode == (0 if report["ok"] else 1) == (0 if host.isolation else 1)


def test_the_table_fits_100_columns_and_cuts_nothing_off(tmp_path: Path) -> None:
    """Long paths go on in the next line."""
    done = emberpool("doctor", cwd=tmp_path)
    assert max(len(line) for line in done.stdout.splitlines()) <= 100
    assert "…" not in done.stdout
    assert {"Temporal", "Redis", "isolation", "GPUs"} <= set(done.stdout.split())


def test_a_server_that_does_not_run_is_a_failure_with_a_remedy(tmp_path: Path) -> None:
    """A broken program on PATH is tried, not trusted; the variable that makes it unneeded is named."""
    broken = tmp_path / "bin" / "temporal"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    path = f"{broken.parent}:{os.environ['PATH']}"
    done = emberpool("doctor", cwd=tmp_path, env={"PATH": path})
    assert done.returncode == 1
    assert "does not run" in done.stdout and "TEMPORAL_ADDRESS" in done.stdout
    done = emberpool("doctor", "--json", cwd=tmp_path, env={"PATH": path, "TEMPORAL_ADDRESS": "localhost:7233"})
    temporal = json.loads(done.stdout)["findings"][0]
    assert (temporal["topic"], temporal["verdict"]) == ("Temporal", "ok")
