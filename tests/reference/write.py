"""Writes every file that comes from the code; `make reference` runs it, and a test compares."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from reference import commands_page, names_page, pages, states_picture

DOCS = Path(__file__).resolve().parents[2] / "docs"

FILES: Mapping[str, Callable[[], str]] = {
    "reference/names.md": names_page.page,
    "reference/settings.md": pages.settings,
    "reference/profiles.md": pages.profiles,
    "reference/commands.md": commands_page.page,
    "reference/errors.md": pages.error_reference,
    "reference/metrics.md": pages.metrics,
    "reference/schemas.md": pages.schemas,
    "images/pod-states.svg": states_picture.picture,
}
"""File below docs/ to what writes it."""


def main() -> int:
    """Write all of them."""
    for name, write in FILES.items():
        file = DOCS / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(write())
    print(f"wrote {len(FILES)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
