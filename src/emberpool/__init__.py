"""emberpool: agent tool calls and RL rollouts as durable activities in warm, isolated pods.

The public API, loaded on first use: workflows import this package inside Temporal's sandbox, where every import costs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emberpool.pool.model.binding import Binding as Binding
    from emberpool.pool.model.binding import Bundle as Bundle
    from emberpool.pool.model.command import Command as Command
    from emberpool.pool.model.command import CommandResult as CommandResult
    from emberpool.pool.model.command import Outcome as Outcome
    from emberpool.worker.plugin import EmberpoolPlugin as EmberpoolPlugin
    from emberpool.worker.remote.session import RemoteSandbox as RemoteSandbox
    from emberpool.worker.remote.tool import ToolClient as ToolClient
    from emberpool.worker.settings import Settings as Settings
    from emberpool.workflows.group import SandboxGroup as SandboxGroup
    from emberpool.workflows.sandbox import Sandbox as Sandbox

__all__ = [
    "Binding",
    "Bundle",
    "Command",
    "CommandResult",
    "EmberpoolPlugin",
    "Outcome",
    "RemoteSandbox",
    "Sandbox",
    "SandboxGroup",
    "Settings",
    "ToolClient",
]

_HOME = {
    "Binding": "emberpool.pool.model.binding",
    "Bundle": "emberpool.pool.model.binding",
    "Command": "emberpool.pool.model.command",
    "CommandResult": "emberpool.pool.model.command",
    "Outcome": "emberpool.pool.model.command",
    "EmberpoolPlugin": "emberpool.worker.plugin",
    "RemoteSandbox": "emberpool.worker.remote.session",
    "Sandbox": "emberpool.workflows.sandbox",
    "SandboxGroup": "emberpool.workflows.group",
    "Settings": "emberpool.worker.settings",
    "ToolClient": "emberpool.worker.remote.tool",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'emberpool' has no attribute {name!r}")
    return getattr(import_module(home), name)
