"""What the documentation lists is what the code has: nothing is copied by hand, and nothing is forgotten."""

from pathlib import Path

import pytest
from reference.pages import typed_errors
from reference.write import DOCS, FILES

TROUBLESHOOT = DOCS / "how-to" / "troubleshoot.md"


@pytest.mark.parametrize("name", list(FILES))
def test_each_file_says_what_the_code_says(name: str) -> None:
    """Byte by byte; `make reference` writes it anew."""
    assert (DOCS / name).read_text() == FILES[name](), f"docs/{name} is not up to date: make reference"


def test_no_other_file_lies_among_them() -> None:
    """A page that nothing writes any more is removed."""
    assert {path.name for path in (DOCS / "reference").iterdir()} == {
        Path(name).name for name in FILES if name.startswith("reference/")
    }


def test_every_error_has_its_entry_in_troubleshoot() -> None:
    """Each typed error: what it means, what to look at, and the remedy."""
    entries = {part.split("\n")[0]: part for part in TROUBLESHOOT.read_text().split("\n## ")}
    for kind in typed_errors():
        entry = entries.get(kind.__name__, "")
        assert "**Look " in entry and "**Remedy:**" in entry, f"{kind.__name__} has no whole entry"
