"""Reading a batch's task file where the command runs, so that a wrong line is told before anything starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ValidationError

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.inputs import invalid_input
from emberpool.pool.model.rollout import RolloutTask

INLINE_BYTES: Final = 256 * 1024
"""Up to this size the tasks travel in the workflow's input, well under Temporal's 2 MiB; above it by URL."""


@dataclass(frozen=True)
class TaskFile:
    """A file whose every line is a task."""

    url: str
    """Absolute, for the workers."""
    tasks: tuple[RolloutTask, ...]
    size: int
    """Bytes."""


def read_tasks(where: str) -> TaskFile:
    """Read and check every line.

    Raises:
        InvalidInput: the file cannot be read, holds no task, or a line is wrong: line and field are named.
    """
    url = where if "://" in where else Path(where).absolute().as_uri()
    text = _text(url, where)
    tasks = [_task(where, number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not tasks:
        raise InvalidInput("TASKS", f"{where} holds no task")
    return TaskFile(url, tuple(tasks), len(text.encode()))


def _text(url: str, where: str) -> str:
    import fsspec

    try:
        with cast(Any, fsspec).open(url, "rt", encoding="utf-8") as opened:
            return str(opened.read())
    except (OSError, ValueError, ImportError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise InvalidInput("TASKS", f"{where} cannot be read: {cause}") from error


def _task(where: str, number: int, line: str) -> RolloutTask:
    try:
        return RolloutTask.model_validate_json(line)
    except ValidationError as error:
        wrong = invalid_input(error, "the line")
        raise InvalidInput(f"{where} line {number}, {wrong.field}", wrong.problem) from error
