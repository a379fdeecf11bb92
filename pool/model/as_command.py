"""The forms in which people give a command, as one Command."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from emberpool.pool.model.command import DEFAULT_TIME_LIMIT_S, Command
from emberpool.pool.model.inputs import checked


def as_command(
    command: Command | str | Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | None,
    stdin: bytes,
    time_limit: timedelta | None,
    output_limit: int,
    replay_safe: bool = False,
) -> Command:
    """A text is for `/bin/sh -c`, a list goes without a shell, a whole Command stays as it is.

    Raises:
        InvalidInput: the command can never be started; the wrong field is named.
    """
    if isinstance(command, Command):
        return command
    text = isinstance(command, str)
    return checked(
        Command,
        shell=command if text else None,
        argv=None if text else tuple(command),
        env=dict(env or {}),
        cwd=cwd,
        stdin=stdin,
        time_limit_s=DEFAULT_TIME_LIMIT_S if time_limit is None else time_limit.total_seconds(),
        output_limit=output_limit,
        replay_safe=replay_safe,
    )
