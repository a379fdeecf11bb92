"""The results folder of a batch: one file per rollout, read as they come."""

from pathlib import Path

from emberpool.pool.model.rollout import RolloutResult


def count_results(folder: Path) -> int:
    """How many rollouts have written their result; 0 while there is no folder."""
    return sum(1 for _ in folder.glob("*.json"))


def read_results(folder: Path) -> tuple[RolloutResult, ...]:
    """Every result, in the order of the files' names.

    Raises:
        ValueError: a file is no result; pydantic's error names the field.
    """
    return tuple(RolloutResult.model_validate_json(path.read_bytes()) for path in sorted(folder.glob("*.json")))
