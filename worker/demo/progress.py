"""How far a batch is: a bar on a terminal, a plain line every few seconds elsewhere."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LOOK_S = 0.5
"""Between two looks at the results."""
LINE_S = 5.0
"""Between two plain lines."""

T = TypeVar("T")


async def show_until(console: Console, total: int, count: Callable[[], int], ended: Awaitable[T]) -> T:
    """Show `count()` of `total` until `ended` is, and return its value. A cancellation cancels `ended` too."""
    show = _show_bar if console.is_terminal else _show_lines
    task = asyncio.ensure_future(ended)
    try:
        await show(console, total, count, task)
        return task.result()
    finally:
        task.cancel()


async def _show_bar(console: Console, total: int, count: Callable[[], int], task: asyncio.Future[T]) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        row = bar.add_task("rollouts", total=total)
        while not await _ended(task):
            bar.update(row, completed=count())


async def _show_lines(console: Console, total: int, count: Callable[[], int], task: asyncio.Future[T]) -> None:
    begun = told = time.monotonic()
    while not await _ended(task):
        now = time.monotonic()
        if now - told >= LINE_S:
            told = now
            console.print(f"{count()} of {total} rollouts after {now - begun:.0f} s")


async def _ended(task: asyncio.Future[T]) -> bool:
    done, _ = await asyncio.wait({task}, timeout=LOOK_S)
    return bool(done)
