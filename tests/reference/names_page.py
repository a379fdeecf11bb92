"""The page of what Temporal sees: workflows with their messages, activities by queue, search attributes."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from emberpool.activities import names
from emberpool.worker.companions import Companions, Role
from emberpool.worker.plugin import WORKFLOWS
from emberpool.worker.settings import Settings
from reference.markdown import HEAD, code, table
from reference.models import summary

QUEUES: Mapping[Role, tuple[str, str]] = {
    "main": ("NAME", "workflows and commands"),
    "control": (names.control_queue("NAME"), summary(names.control_queue)),
    "wait": (names.wait_queue("NAME"), summary(names.wait_queue)),
    "tools": (names.tools_queue("NAME"), summary(names.tools_queue)),
}


def page() -> str:
    """All names that are for ever."""
    parts = [
        f"{HEAD}# Workflows, activities, queues\n\nThese names are for ever: a changed meaning gets a new name.\n",
        "\n## Task queues\n\nNAME is `EMBERPOOL_TASK_QUEUE`.\n\n",
        table(("queue", "for"), [(code(queue), what) for queue, what in QUEUES.values()]),
        "\n## Workflows\n",
    ]
    for kind in WORKFLOWS:
        parts.append(_workflow(kind))
    parts.append("\n## Activities\n\n")
    companions = Companions(Settings(profiles=()))
    rows = [
        (code(_activity_name(one)), code(QUEUES[role][0]), summary(one))
        for role in QUEUES
        for one in companions.activities(role)
    ]
    parts.append(table(("activity", "queue", "what it does"), rows))
    parts.append("\n## Search attributes\n\nAll of type Keyword.\n\n")
    parts.append("".join(f"- {code(name)}\n" for name in names.SEARCH_ATTRIBUTES))
    return "".join(parts)


def _workflow(kind: type) -> str:
    definition: Any = getattr(kind, "__temporal_workflow_definition")  # noqa: B009
    messages = [
        (code(name), what, _input(one.fn), summary(one.fn))
        for what, group in (
            ("signal", definition.signals),
            ("query", definition.queries),
            ("update", definition.updates),
        )
        for name, one in group.items()
        if name and not name.startswith("__")
    ]
    told = f"\n### {definition.name}\n\n{summary(kind)} {summary(definition.run_fn)}\n"
    return told + ("\n" + table(("name", "kind", "argument", "meaning"), messages) if messages else "")


def _input(function: Callable[..., Any]) -> str:
    hints = get_type_hints(function)
    found = [hints[name] for name in inspect.signature(function).parameters if name in hints]
    return ", ".join(code(one.__name__) for one in found)


def _activity_name(function: Callable[..., Any]) -> str:
    definition: Any = getattr(function, "__temporal_activity_definition")  # noqa: B009
    return str(definition.name)
