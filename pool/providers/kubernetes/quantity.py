"""Kubernetes' quantities: the API server writes back 1Gi where 1024Mi was asked for."""

import re
from collections.abc import Mapping
from decimal import Decimal

_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30}))(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)"
)
"""1E is a suffix, 1E3 an exponent."""


def amount(text: str) -> Decimal:
    """A quantity as a number.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    digits, exponent, suffix = found.groups()
    return Decimal(digits).scaleb(int(exponent or 0)) * _FACTORS[suffix or ""]


def has_amounts(all_of: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether every resource of `wanted` is there in its amount, whatever else is."""
    return same_amounts({name: text for name, text in all_of.items() if name in wanted}, wanted)


def same_amounts(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether both name the same resources in the same amounts."""
    return one.keys() == other.keys() and all(amount(one[name]) == amount(other[name]) for name in one)
