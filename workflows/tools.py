"""Tools for agents that run in the workflow: plain async functions that return text, for any agent framework.

They need no activity of the framework's: each call is one of emberpool's own activities, with its time limit,
heartbeats, summary and typed errors. What a model can correct (a failing command, a missing file) comes back as text;
what it cannot (the sandbox is lost) is raised.

The docstrings below are read by models.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from emberpool.activities.current import CURRENT
from emberpool.pool.model.errors import InvalidInput, NoCurrentSandbox, SandboxFileError
from emberpool.pool.model.shown import SHOWN_LIMIT, shown, shown_error, shown_file
from emberpool.workflows.sandbox import Sandbox

Tool = Callable[..., Awaitable[str]]
"""Flat arguments, text out."""


def tools_for(sandbox: Sandbox, *, prefix: str = "", time_limit: timedelta = timedelta(seconds=60)) -> tuple[Tool, ...]:
    """`bash`, `read_file` and `write_file` on one sandbox.

    Args:
        prefix: put before each name, so that one agent can hold the tools of two sandboxes.
        time_limit: of each command.
    """
    return _made(lambda tool: sandbox, prefix, time_limit)


def current_tools(*, prefix: str = "", time_limit: timedelta = timedelta(seconds=60)) -> tuple[Tool, ...]:
    """The same tools on whatever sandbox is current when they are called, for an agent that is made once.

    Outside `async with sandbox.current():` they raise NoCurrentSandbox.
    """
    return _made(_current, prefix, time_limit)


def _current(tool: str) -> Sandbox:
    current = CURRENT.get()
    if not isinstance(current, Sandbox):
        raise NoCurrentSandbox(tool)
    return current


def _made(find: Callable[[str], Sandbox], prefix: str, time_limit: timedelta) -> tuple[Tool, ...]:
    async def bash(command: str) -> str:
        """Run a shell command in the sandbox and return its output and how it ended.

        Args:
            command: Shell text for /bin/sh, run in /work.
        """
        sandbox = find("bash")
        try:
            return shown(await sandbox.run(command, time_limit=time_limit, output_limit=SHOWN_LIMIT))
        except InvalidInput as error:
            return _corrected(error, "shell", "command")

    async def read_file(path: str) -> str:
        """Read a text file of the sandbox.

        Args:
            path: Path of the file; a relative one is taken from /work.
        """
        sandbox = find("read_file")
        try:
            return shown_file(path, await sandbox.read_file(path))
        except SandboxFileError as error:
            return shown_error(error)
        except InvalidInput as error:
            return _corrected(error, "path")

    async def write_file(path: str, text: str) -> str:
        """Write a text file of the sandbox, whole; missing folders are made.

        Args:
            path: Path of the file; a relative one is taken from /work.
            text: All of the file's text.
        """
        sandbox = find("write_file")
        try:
            await sandbox.write_file(path, text)
        except SandboxFileError as error:
            return shown_error(error)
        except InvalidInput as error:
            return _corrected(error, "path", "data")
        return f"[wrote {path}]"

    tools: tuple[Tool, ...] = (bash, read_file, write_file)
    for tool in tools:
        tool.__name__ = tool.__qualname__ = f"{prefix}{tool.__name__}"
    return tools


def _corrected(error: InvalidInput, *fields: str) -> str:
    """The error as text if it is about one of the model's own arguments; any other (the profile) is raised."""
    if error.field in (*fields, "input"):
        return shown_error(error)
    raise error
