"""What callers weigh against each other in a pool's line."""

from collections.abc import Mapping

from pydantic import StrictInt

HEAVIEST = 1000
"""Highest weight of a caller. The lowest is 1, which is also that of callers that are not named."""

Weights = Mapping[str, StrictInt]
"""Weights by the callers' names."""


def check_weights(weights: Weights) -> None:
    """Raises:
    ValueError: a caller has no name, or a weight that is none; the text says which one and what to do.
    """
    for caller, weight in weights.items():
        if not caller:
            raise ValueError("one caller has no name: name it as `Sandbox.open(caller=...)` does, or leave it out")
        if not 1 <= weight <= HEAVIEST:
            raise ValueError(
                f"{caller!r} has {weight}: use a whole number from 1 to {HEAVIEST}; leave out who is to have 1"
            )
