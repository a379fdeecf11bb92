"""What the README shows works as it stands there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_compiles(number: int) -> None:
    """Each Python block is whole."""
    compile(BLOCKS[number], f"README.md, block {number + 1}", "exec")


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
