"""Pools as a table for people, at most 80 columns wide."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emberpool.pool.model.state import PodState
from emberpool.worker.cli.pools import Look

COLUMNS = (
    ("start", (PodState.STARTING, PodState.PROMOTING, PodState.SWAPPING)),
    ("standby", (PodState.STANDBY,)),
    ("idle", (PodState.IDLE,)),
    ("leased", (PodState.LEASED,)),
    ("reset", (PodState.DIRTY, PodState.RECYCLING)),
    ("drain", (PodState.DRAINING,)),
)
"""Ten states in six columns: what is coming, what is ready, what works, what is being cleaned, what goes."""


def pools_table(looks: Sequence[Look], *, with_deployment: bool, title: str = "") -> RenderableType:
    """One row per pool, and below it what went wrong or is not of this moment."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="dim")
    table.add_column("pool", overflow="fold")
    table.add_column("pods", justify="right", no_wrap=True)
    for name in (*(name for name, _ in COLUMNS), "waiting"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("warm", justify="right", no_wrap=True)
    for look in looks:
        table.add_row(*_row(look, with_deployment))
    return Group(table, *[note for look in looks for note in _notes(look)])


def _row(look: Look, with_deployment: bool) -> list[str | Text]:
    now = look.now
    pods = sum(now.by_state.values())
    counts = [str(sum(now.by_state.get(state, 0) for state in states)) for _, states in COLUMNS]
    name = f"{look.deployment}/{look.profile}" if with_deployment else look.profile
    waiting = Text(str(now.waiting), style="yellow" if now.waiting else "")
    warm = Text(f"{now.idle_fresh}/{look.status.min_warm}")
    return [name, f"{pods}/{look.status.max_pods}", *counts, waiting, warm]


def _notes(look: Look) -> Sequence[Text]:
    notes: list[Text] = []
    if look.now.waiting and look.now.oldest_wait_s:
        notes.append(Text(f"{look.profile}: the oldest request has waited {look.now.oldest_wait_s:.0f} s", "yellow"))
    if look.status.failure:
        notes.append(Text(f"{look.profile}: last failure: {look.status.failure}", "red"))
    if not look.fresh:
        notes.append(Text(f"{look.profile}: as its manager's last plan saw it, up to a minute ago", "dim"))
    return notes
