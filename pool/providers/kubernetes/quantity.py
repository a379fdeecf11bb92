"""Kubernetes' quantities: the API server writes back 1Gi where 1024Mi was asked for."""

from collections.abc import Mapping
from decimal import Decimal

_FACTORS = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def amount(text: str) -> Decimal:
    """A quantity as a number.

    Raises:
        ValueError: it is none.
    """
    digits = text.rstrip("kKMGTPEim")
    try:
        return Decimal(digits) * _FACTORS[text[len(digits) :]]
    except (ArithmeticError, KeyError) as error:
        raise ValueError(f"{text!r} is no quantity") from error


def has_amounts(all_of: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether every resource of `wanted` is there in its amount, whatever else is."""
    return same_amounts({name: text for name, text in all_of.items() if name in wanted}, wanted)


def same_amounts(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether both name the same resources in the same amounts."""
    return one.keys() == other.keys() and all(amount(one[name]) == amount(other[name]) for name in one)
