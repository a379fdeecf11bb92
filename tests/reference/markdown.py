"""Small pieces of Markdown."""

from collections.abc import Iterable, Sequence

HEAD = "<!-- Written from the code by `make reference`; change the code. -->\n\n"
"""First line of every page that is written here."""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar inside a cell is escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(one_line(cell).replace('|', chr(92) + '|') for cell in row)} |\n" for row in lines)


def one_line(text: str | None) -> str:
    """Text without line breaks."""
    return " ".join((text or "").split())


def code(text: str) -> str:
    """As code; nothing stays nothing."""
    return f"`{text}`" if text else ""
