"""How the code is laid out and packed: one package, real folders, nothing lost and nothing added."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("workflows", "activities", "pool", "worker")
MAX_LINES = 400
CODE = (".py", ".lua", ".sh")

needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")


def tracked(*under: str) -> list[Path]:
    """Every file that git tracks or would track."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *under]
    listed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_package_links_to_the_real_folders(folder: str) -> None:
    """Relative links, so that a checkout may lie anywhere."""
    assert os.readlink(ROOT / "src" / "emberpool" / folder) == f"../../{folder}"


def test_only_emberpool_can_be_imported(tmp_path: Path) -> None:
    """A class that could be imported under two names would be two classes."""
    script = f"""
import importlib.util, emberpool
print([name for name in {FOLDERS!r} if importlib.util.find_spec(name)])
"""
    argv = [sys.executable, "-P", "-c", script]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@needs_git
def test_the_wheel_holds_what_git_holds(tmp_path: Path) -> None:
    """Built through the sdist, as it is published; every file byte by byte."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    compare = [sys.executable, ".ci/wheel_is_git.py", str(wheel)]
    done = subprocess.run(compare, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_go_one_way() -> None:
    """worker, workflows, activities, pool: and the pool knows nothing of Temporal."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_git
def test_no_file_is_longer_than_people_read() -> None:
    """A file of code has at most 400 lines."""
    lengths = {path: len(path.read_text().splitlines()) for path in tracked() if path.suffix in CODE}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_LINES} == {}


@needs_git
def test_no_file_is_named_after_nothing() -> None:
    """A name says what is in a file; these names do not. Only Kustomize has its own word for what overlays lie on."""
    vague = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
    paths = [path for path in tracked() if not path.is_relative_to(ROOT / "deploy" / "base")]
    named = {part for path in paths for part in (*path.relative_to(ROOT).parts[:-1], path.stem)}
    assert named & vague == set()


def test_the_root_module_is_light() -> None:
    """Workflows import it inside Temporal's sandbox, for each instance: nothing heavy may come with it."""
    heavy = ("temporalio", "redis", "kubernetes", "aiohttp", "prometheus_client")
    script = f"import sys, emberpool; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
