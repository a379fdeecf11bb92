"""The tutorial, taken at its word in an empty folder: each block is saved or run, and prints what it says."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from fixtures.command_line import clean_env
from fixtures.printed import Step, says, steps
from fixtures.waiting import wait_until

from emberpool.pool.model.profile import parse_profiles

ROOT = Path(__file__).resolve().parents[2]
STEPS = steps((ROOT / "docs" / "tutorial.md").read_text())
INSTALL = "pip install 'emberpool[local]'"
STOP_S = 30.0


def shell(step: Step, folder: Path, env: Mapping[str, str]) -> str:
    """What the step's commands print, in one terminal."""
    done = subprocess.run(
        ["bash", "-c", step.body],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120.0,
    )
    return done.stdout


def start(step: Step, folder: Path, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """The step's program; it goes on until it is ended."""
    with log.open("w") as out:
        return subprocess.Popen(["bash", "-c", f"exec {step.body}"], cwd=folder, env=env, stdout=out, stderr=out)


async def other_terminal(step: Step, folder: Path, env: Mapping[str, str], running: ExitStack) -> str:
    """What the step's commands print until they have said all; they go on until the test ends."""
    log = folder / f".{step.title.replace(' ', '-')}.log"
    process = start(step, folder, env, log)
    running.callback(process.wait, STOP_S)
    running.callback(process.terminate)

    async def said() -> bool:
        assert process.poll() is None, log.read_text()
        return says(log.read_text(), step.prints or "")

    try:
        await wait_until(said, 90.0)
    except AssertionError as error:
        raise AssertionError(f"{step.body} printed:\n{log.read_text()}") from error
    return log.read_text()


async def test_every_block_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """All but the installation, which the check of the wheel runs; `emberpool dev` is the tutorial's own."""
    first, *rest = STEPS
    assert INSTALL in first.body
    folder = tmp_path / "empty"
    folder.mkdir()
    env = clean_env({"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)})
    ran = 0
    with ExitStack() as running:
        for step in rest:
            if step.file:
                (folder / step.file).write_text(step.body)
                continue
            assert step.kind == "sh" and step.prints is not None, f"neither a file to save nor commands: {step}"
            if step.title:
                printed = await other_terminal(step, folder, env, running)
                address = re.search(r"^Temporal +(\S+:\d+)", printed, re.MULTILINE)
                if address is not None:
                    env["TEMPORAL_ADDRESS"] = address[1]  # as the text says, where 7233 was taken
            else:
                printed = shell(step, folder, env)
            assert says(printed, step.prints), f"{step.body}\nprinted:\n{printed}\nand not:\n{step.prints}"
            ran += 1
    assert ran >= 9


def test_what_is_printed_is_compared_line_by_line() -> None:
    """Only `...` stands for anything: inside a line for a part of it, alone for lines."""
    assert says("a\nb 17 c\nz\n", "a\nb ... c\nz") and says("1\n2\nend  \n", "...\nend")
    assert not says("a\nb\n", "a") and not says("status 3\n", "status 4") and not says("", "42")


def test_what_the_page_on_agents_shows_is_what_the_examples_run() -> None:
    """Each piece under a framework's heading stands in one of the examples, word by word."""
    shown = (ROOT / "docs" / "agents.md").read_text().split("### OpenAI Agents SDK")[1]
    examples = [file.read_text() for file in (ROOT / "examples").glob("*.py")]
    pieces = [step.body for step in steps(shown)]
    assert len(pieces) == 4
    assert [piece for piece in pieces if not any(piece.rstrip() in example for example in examples)] == []


@pytest.mark.parametrize("page", ["profile", "deploy"])
def test_commands_of_how_to_pages_print_what_they_say(page: str, tmp_path: Path) -> None:
    """Those that need no server: files are saved, commands run, what they print is compared, and profiles are right."""
    env = clean_env({"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    compared = 0
    for step in steps((ROOT / "docs" / "how-to" / f"{page}.md").read_text()):
        if step.file:
            (tmp_path / step.file).write_text(step.body)
        elif step.kind == "sh":
            printed = shell(step, tmp_path, env)
            assert step.prints is not None and says(printed, step.prints), f"{step.body}\nprinted:\n{printed}"
            compared += 1
        elif step.kind == "yaml":
            assert parse_profiles(step.body)
    assert compared
