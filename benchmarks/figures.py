"""What a measurement comes to: rows for people, numbers for machines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bound:
    """What is asked of one figure."""

    figure: str
    """Its name in the figures."""
    limit: float
    unit: str = "ms"
    at_least: bool = False
    """Whether more is better."""

    def holds(self, value: float) -> bool:
        """Whether a value is as asked; none, as of a share that nothing fell into, is not."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Measured:
    """One measurement's outcome."""

    name: str
    title: str
    setting: str
    """What was real and what was not, and how it was measured: figures mean nothing without it."""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: dict[str, float] = field(default_factory=dict[str, float])
    """Numbers by name, the unit in the name."""
    bounds: tuple[Bound, ...] = ()

    def judged(self) -> list[tuple[str, bool]]:
        """What is asked of each figure that has a bound, in a line, and whether it holds."""
        found: list[tuple[str, bool]] = []
        for bound in self.bounds:
            value, most = self.figures[bound.figure], "at least" if bound.at_least else "at most"
            unit = "" if bound.unit == "x" else f" {bound.unit}"
            held = bound.holds(value)
            line = (
                f"{bound.figure}: {value:.2f}{unit}; asked: {most} {bound.limit:g}{unit}, {'ok' if held else 'missed'}"
            )
            found.append((line, held))
        return found


def quantile(values: Sequence[float], share: float) -> float:
    """By nearest rank: a value that occurred.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def ms(value: float) -> str:
    """Milliseconds for a table."""
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms"
