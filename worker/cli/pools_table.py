"""Pools as a table for people, at most 80 columns wide."""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
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


GAP = 2
"""Blanks between two columns."""


def pools_table(looks: Sequence[Look], *, with_deployment: bool, title: str = "") -> RenderableType:
    """One row per pool, and below it what went wrong or is not of this moment."""
    head = [Text(name, "dim") for name in ("pool", "pods", *(name for name, _ in COLUMNS), "waiting", "warm")]
    rows = _Rows([head, *[_row(look, with_deployment) for look in looks]])
    notes = [note for look in looks for note in _notes(look)]
    return Group(*([Text(title, "bold")] if title else []), rows, *notes)


class _Rows:
    """Names to the left, numbers to the right; a name for which a narrow terminal has no room has a line of its own."""

    def __init__(self, rows: Sequence[Sequence[Text]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(len(cell) for cell in column) for column in zip(*self._rows, strict=True)]
        room = min(widths[0], options.max_width - sum(width + GAP for width in widths[1:]))
        for name, *numbers in self._rows:
            if len(name) > room:
                yield name
                name = Text()
            line = Text(no_wrap=True).append_text(name).append(" " * (room - len(name)))
            for number, width in zip(numbers, widths[1:], strict=True):
                line.append(" " * (GAP + width - len(number))).append_text(number)
            yield line


def _row(look: Look, with_deployment: bool) -> list[Text]:
    now = look.now
    pods = sum(now.by_state.values())
    counts = [Text(str(sum(now.by_state.get(state, 0) for state in states))) for _, states in COLUMNS]
    name = f"{look.deployment}/{look.profile}" if with_deployment else look.profile
    waiting = Text(str(now.waiting), style="yellow" if now.waiting else "")
    warm = Text(f"{now.idle_fresh}/{look.status.min_warm}")
    return [Text(name), Text(f"{pods}/{look.status.max_pods}"), *counts, waiting, warm]


def _notes(look: Look) -> Sequence[Text]:
    notes: list[Text] = []
    if look.now.waiting and look.now.oldest_wait_s:
        notes.append(Text(f"{look.profile}: the oldest request has waited {look.now.oldest_wait_s:.0f} s", "yellow"))
    share = look.status.queue_share
    if share is not None and share < look.status.max_pods:
        notes.append(Text(f"{look.profile}: its queue leaves it {share} of {look.status.max_pods} pods", "yellow"))
    if look.now.quarantined:
        total, reasons = sum(look.now.quarantined.values()), sorted(look.now.quarantined.items())
        told = "; ".join(f"{count} for {reason}" for reason, count in reasons)
        notes.append(Text(f"{look.profile}: {total} quarantined, being deleted: {told}", "yellow"))
    if look.status.failure:
        notes.append(Text(f"{look.profile}: last failure: {look.status.failure}", "red"))
    if not look.fresh:
        notes.append(Text(f"{look.profile}: as its manager's last plan saw it, up to a minute ago", "dim"))
    return notes
