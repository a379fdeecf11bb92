"""deploy/images, without a builder: what the Dockerfiles copy is in the build context, and all that a wheel needs."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from testcluster.machine import missing_tools

from emberpool.pool.providers.kubernetes.injection import EMBERD, HOME, OWN_PYTHON

TOP = Path(__file__).parents[2]
DOCKERFILES = sorted((TOP / "deploy" / "images").glob("*.Dockerfile"))
EMBERD_OWN, SANDBOX_CUDA, SANDBOX, WORKER = DOCKERFILES


def instructions(path: Path) -> list[tuple[str, str]]:
    """Word and rest of each, comments left out, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def in_context(name: str) -> bool:
    """Whether .dockerignore lets it into the build: of the patterns for it, or for a folder above, the last counts."""
    kept = True
    parts = Path(name).parts
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for line in (TOP / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            if any(fnmatch(one, pattern) or fnmatch(one.rpartition("/")[2], pattern) for one in above):
                kept = line.startswith("!")
    return kept


def test_there_are_four() -> None:
    """Workers, sandboxes with and without CUDA, and what is mounted into sandboxes of other images."""
    assert [path.stem for path in DOCKERFILES] == ["emberd", "sandbox-cuda", "sandbox", "worker"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_what_is_copied_is_there(path: Path) -> None:
    """Every source of COPY, unless it is another stage's; and nothing is fetched by ADD."""
    stages = {rest.rpartition(" AS ")[2] for word, rest in instructions(path) if word == "FROM" and " AS " in rest}
    copied = 0
    for word, rest in instructions(path):
        assert word != "ADD"
        if word == "COPY":
            stage = re.match(r"--from=(\S+)", rest)
            assert stage is None or stage[1] in stages
            if stage is None:
                for source in rest.split()[:-1]:
                    assert (TOP / source).exists() and (source == "." or in_context(source)), source
                    copied += 1
    assert copied


def test_the_context_is_all_that_a_wheel_needs_and_little_else() -> None:
    """pyproject.toml and every file that it names; no key, environment or history of a checkout."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    about, build = project["project"], project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in ("pyproject.toml", about["readme"], *about["license-files"], *build["only-include"]):
        assert (TOP / name).exists() and in_context(name), name
    for name in (".git", ".venv/bin/python", "pool.key", "deploy/base/worker.env", "pool/emberd/__pycache__/main.pyc"):
        assert not in_context(name), name


def test_a_base_with_python_needs_no_shell() -> None:
    """Nothing is run by one, as bases that are called distroless have none."""
    runs = [json.loads(rest) for word, rest in instructions(SANDBOX) if word == "RUN"]
    assert runs and {words[0] for words in runs} == {"python3"}


def test_a_base_without_python_gets_one() -> None:
    """Before anything needs it; the rest is as in any sandbox's image."""
    said = [one for one in instructions(SANDBOX_CUDA) if one[0] not in ("ARG", "FROM")]
    (install,) = (one for one in said if "apt-get" in one[1])
    assert said.index(install) < said.index(next(one for one in said if "python3" in one[1]))
    assert [one for one in said if one != install] == [
        one for one in instructions(SANDBOX) if one[0] not in ("ARG", "FROM")
    ]


@pytest.mark.parametrize("path", [SANDBOX, SANDBOX_CUDA], ids=lambda path: path.stem)
def test_sandboxes_have_emberd_where_it_is_started(path: Path) -> None:
    """The path in pods' manifests is the one in the image."""
    (copy,) = (rest for word, rest in instructions(path) if word == "COPY")
    source, target = copy.split()
    assert EMBERD == f"{target}/main.py" and (TOP / source / "main.py").is_file()
    (entry,) = (json.loads(rest) for word, rest in instructions(path) if word == "ENTRYPOINT")
    assert entry == ["python3", "-I", EMBERD]


def test_what_is_mounted_is_made_for_its_place() -> None:
    """emberd's own image holds at its top what pods mount, and start from there."""
    (run,) = (json.loads(rest) for word, rest in instructions(EMBERD_OWN) if word == "RUN")
    copies = [rest for word, rest in instructions(EMBERD_OWN) if word == "COPY"]
    assert run[-2] == HOME and f"--from=build {HOME} /" in copies and EMBERD.startswith(f"{HOME}/emberd/")


def test_emberd_runs_by_a_loader_of_its_own(tmp_path: Path) -> None:
    """With its own libraries and no other, wherever it lies; it can open compiled modules, as emberd does."""
    home = tmp_path / "home"
    made = [sys.executable, "-I", str(TOP / "deploy/images/portable_python.py"), str(home), str(TOP / "pool/emberd")]
    subprocess.run(made, check=True)
    python = [word.replace(HOME, str(home)) for word in OWN_PYTHON]
    program = "import ctypes, ssl, sys; ctypes.CDLL(None); print(sys.prefix); print(open('/proc/self/maps').read())"
    said = subprocess.run([*python, "-I", "-c", program], check=True, capture_output=True, text=True, env={}).stdout
    prefix, *maps = said.splitlines()
    assert prefix == str(home)
    assert not [line for line in maps if ".so" in line and str(home) not in line]
    assert (home / "emberd" / "main.py").is_file()


def test_workers_run_the_installed_command_as_nobody() -> None:
    """The entry point is a script of the package, with the extra that jobs' packages need; the user is the
    Deployment's."""
    said = instructions(WORKER)
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    (entry,) = (json.loads(rest) for word, rest in said if word == "ENTRYPOINT")
    assert entry[0] in project["scripts"] and entry[1] == "worker"
    (extras,) = re.findall(r'"/src\[(\S+)\]"', WORKER.read_text())
    assert extras in project["optional-dependencies"]
    user = next(rest for word, rest in said if word == "USER")
    worker = (TOP / "deploy" / "base" / "worker.yaml").read_text()
    assert f"runAsUser: {user.partition(':')[0]}\n" in worker


def test_a_usual_run_says_how_they_are_built() -> None:
    """By the target that does it, which is not the one of the other tests of the cluster."""
    words = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "tests/deploy/test_dockerfiles_are_built.py"]
    said = subprocess.run(words, cwd=TOP, capture_output=True, text=True).stdout
    (line,) = (one for one in said.splitlines() if one.startswith("left out: "))
    assert line.endswith(f"({missing_tools() or 'run them with `make test-images`'})")
