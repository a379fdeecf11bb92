"""What a measurement comes to: rows for people, numbers for machines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


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
