"""A command that can never be started is refused where it is made, naming the field."""

import pytest
from pydantic import ValidationError

from emberpool.pool.model.command import Command, CommandResult, Outcome
from emberpool.pool.model.errors import (
    CommandFailed,
    CommandFilledDisk,
    CommandOutOfMemory,
    CommandTimedOut,
    InvalidInput,
)
from emberpool.pool.model.inputs import checked


@pytest.mark.parametrize("limit", [-1, 0, float("inf"), float("nan"), "abc"])
def test_nonsense_limits_are_refused(limit: object) -> None:
    """A negative, zero, infinite or textual time limit is refused with the field's name (modelscope/evalscope#1688)."""
    with pytest.raises(InvalidInput, match="time_limit_s"):
        checked(Command, shell="true", time_limit_s=limit)


@pytest.mark.parametrize(
    "fields",
    [{"shell": "a\0b"}, {"argv": ["a", "\0"]}, {"shell": "a", "env": {"K": "\0"}}, {"shell": "a", "cwd": "\0"}],
)
def test_nul_bytes_are_refused(fields: dict[str, object]) -> None:
    """A NUL byte anywhere is a typed error before anything runs (aiming-lab/AutoResearchClaw#171)."""
    with pytest.raises(InvalidInput, match="NUL"):
        checked(Command, **fields)


def test_one_form_only() -> None:
    """argv or shell, not both, not none."""
    with pytest.raises(ValidationError, match="not both"):
        Command(argv=("a",), shell="a")
    with pytest.raises(ValidationError, match="not none"):
        Command()


def test_a_result_reads_the_same_twice() -> None:
    """The exit code is a value, not a stream (kubernetes-client/python-base#271); undecodable text is replaced
    (#88)."""
    result = CommandResult(outcome=Outcome.EXITED, exit_code=4, stdout=b"\xff\xfeok")
    assert result.exit_code == result.exit_code == 4
    assert result.text == "\ufffd\ufffdok" and result.stdout == b"\xff\xfeok"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Outcome.EXITED, CommandFailed),
        (Outcome.SIGNALED, CommandFailed),
        (Outcome.TIMED_OUT, CommandTimedOut),
        (Outcome.OOM_KILLED, CommandOutOfMemory),
        (Outcome.DISK_FULL, CommandFilledDisk),
    ],
)
def test_check_raises_by_outcome(outcome: Outcome, error: type[CommandFailed]) -> None:
    """Each way to fail has its own type, and the text carries the output's end (Significant-Gravitas/AutoGPT#12904)."""
    with pytest.raises(error, match="reason") as caught:
        CommandResult(outcome=outcome, exit_code=1, stdout=b"reason\n", time_limit_s=2).check()
    assert type(caught.value) is error
