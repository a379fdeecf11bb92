"""Carrying a policy's files into the sandbox that they are judged in, where nothing of the policy runs."""

from contextlib import suppress

from emberpool.pool.model.errors import InvalidInput, SandboxFileError
from emberpool.pool.model.rollout import Verifier
from emberpool.workflows.sandbox import Sandbox

Kept = dict[str, bytes]
"""Content of files by their paths."""


async def carried_over(sandbox: Sandbox, verifier: Verifier) -> Kept:
    """The files that the verifier collects, each read once; a link, FIFO or folder in their place is no file."""
    kept: Kept = {}
    if verifier.fresh:
        for path in verifier.collect:
            with suppress(SandboxFileError):
                kept[path] = await sandbox.read_file(path)
    return kept


async def lay_out(sandbox: Sandbox, kept: Kept) -> None:
    """Write what was kept; a path that cannot be written here is left out."""
    for path, data in kept.items():
        with suppress(SandboxFileError, InvalidInput):
            await sandbox.write_file(path, data)
