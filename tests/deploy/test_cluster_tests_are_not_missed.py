"""The hooks of fixtures/cluster.py: what a run of pytest says of tests that need the test cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SKIPS = """
import pytest
@pytest.mark.cluster
def test_a(): pytest.skip("no reason")
@pytest.mark.images
def test_b(): pytest.skip("no reason")
@pytest.mark.cluster
def test_c(record_property): record_property("figure_of_c", 42)
"""


def _pytest(folder: Path, *words: str, **env: str) -> str:
    """What pytest prints of these tests, with those hooks and nothing else of the suite's."""
    (folder / "test_some.py").write_text(SKIPS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  cluster\n  images\n")
    argv = [sys.executable, "-P", "-m", "pytest", "-p", "fixtures.cluster", "-p", "no:cacheprovider", "-rA", *words]
    mine = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS", "KUBECONFIG")}
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "deploy")])
    return subprocess.run(
        argv, cwd=folder, env={**mine, "PYTHONPATH": paths, **env}, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(("ci", "outcomes"), [("1", "1 failed, 1 passed"), ("", "1 passed, 1 skipped")])
def test_what_was_asked_for_may_not_skip_in_ci(tmp_path: Path, ci: str, outcomes: str) -> None:
    """There it has failed; on a machine of one's own it is skipped. What a test measured is shown."""
    said = _pytest(tmp_path, "-m", "cluster", CI=ci)
    assert outcomes in said, said
    assert ("skipped, which no test of the cluster may in CI" in said) is bool(ci), said
    assert "measured: figure_of_c = 42" in said.splitlines()


def test_a_usual_run_says_what_it_left_out(tmp_path: Path) -> None:
    """A line of each kind, with what is lacking to run them: without Go on the PATH, Go."""
    said = _pytest(tmp_path, "--collect-only", PATH="/nowhere")
    (first, second) = [line for line in said.splitlines() if line.startswith("left out: ")]
    assert first.startswith("left out: 2 tests that need the test cluster (") and "go" in first.lower(), said
    assert second.startswith("left out: 1 that have images built for it (") and "go" in second.lower(), said
