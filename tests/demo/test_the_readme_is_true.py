"""What the README shows works as it stands there."""

import asyncio
import os
import re
import sys
from pathlib import Path

from emberpool.pool.model.profile import Profile
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


async def test_the_example_runs(tmp_path: Path) -> None:
    """The workflow and the program beside it, saved as the text says, print what the patch prints."""
    names = re.findall(r"`(\w+\.py)`:\n\n```python", README)
    for name, block in zip(names, BLOCKS, strict=True):
        (tmp_path / name).write_text(block)
    profile = Profile(name="default", min_warm=1, max_pods=2)
    async with EmbeddedStack(StackOptions(tmp_path / "data", ephemeral=True, profiles=(profile,))) as stack:
        env = {"PATH": os.environ["PATH"], "TEMPORAL_ADDRESS": stack.temporal_address}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "run.py", cwd=tmp_path, env=env, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 90)
    assert out.strip() == b"42"


def test_every_name_that_it_imports_is_public() -> None:
    """Whatever the blocks import from emberpool is part of its public API."""
    import emberpool

    shown = set(re.findall(r"^from emberpool import (\w+)$", README, flags=re.MULTILINE))
    assert shown and shown <= set(emberpool.__all__)
    assert all(getattr(emberpool, name) for name in shown)


def test_every_link_leads_somewhere() -> None:
    """Links to files of the repository name files that are there."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links and [link for link in links if not (ROOT / link).exists()] == []
