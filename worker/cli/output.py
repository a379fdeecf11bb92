"""How the command line looks: two consoles, one shape of error, tables that fit 100 columns."""

import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.text import Text

WIDTH = 100


def console(stderr: bool = False) -> Console:
    """A console on the present standard stream; at most 100 columns, and exactly so when it is not a terminal."""
    made = Console(stderr=stderr, highlight=False)
    made.width = min(made.width, WIDTH) if made.is_terminal else WIDTH
    return made


F = TypeVar("F", bound=Callable[..., object])


def readable_help(command: F) -> F:
    """Decorator: its docstring as help, whose paragraphs flow to the terminal's width; indented lines stay as they are.

    Else each line of the source breaks where the source does, and once more where the terminal ends.
    """
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    flowing = [one if one.startswith(" ") else " ".join(one.split("\n")) for one in paragraphs]
    if flowing[-1].startswith(" "):
        # Typer takes away what all lines but the first are indented by: a last one without, and unseen, keeps it.
        flowing.append("[bold][/bold]")
    command.__doc__ = "\n\n".join(flowing)
    return command


def print_error(what: str, remedy: str = "", log_tail: str = "") -> None:
    """One red line with what failed, the log's last lines if there are any, and what to do about it."""
    out = console(stderr=True)
    out.print(f"[red bold]error:[/] [red]{escape(' '.join(what.split()))}[/]", soft_wrap=True)
    for line in log_tail.splitlines():
        out.print(f"  [dim]| {escape(line)}[/]", soft_wrap=True)
    if remedy:
        out.print(f"[bold]remedy:[/] {escape(remedy)}", soft_wrap=True)


def print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values below each other. A long value goes on in the next line, never cut off; a long word, as an
    address is, stays in one piece, so that it can be copied."""
    rows = list(pairs)
    out = console()
    wide = max((len(name) for name, _ in rows), default=0) + 2
    out.print(Text(title, style="bold"), soft_wrap=True)
    for name, value in rows:
        lines = textwrap.wrap(value, out.width - wide, break_long_words=False, break_on_hyphens=False)
        out.print(
            Text(name.ljust(wide), style="dim").append(f"\n{' ' * wide}".join(lines), style="not dim"), soft_wrap=True
        )


def print_json(data: object) -> None:
    """JSON for machines, whole lines, no colours."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")
