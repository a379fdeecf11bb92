"""JSON Schemas of what people and programs outside of Python write: workflow inputs, task lines, profiles, signals.

The docstrings below a model's fields become the schema's descriptions, so that there is one text of each.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast, get_args

from pydantic import BaseModel

from emberpool.activities import names
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.gang_job import GangJobInput, GangJobResult
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.rollout import RolloutBatchInput, RolloutBatchResult, RolloutInput, RolloutResult, RolloutTask
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.workflows.pool_manager import Budget

SCHEMAS: Final[Mapping[str, tuple[type[BaseModel], str]]] = {
    names.TOOL_CALL: (ToolCallInput, "input of the workflow: one command in a sandbox of its own"),
    names.ROLLOUT: (RolloutInput, "input of the workflow: one rollout of a policy on a task"),
    names.ROLLOUT_BATCH: (RolloutBatchInput, "input of the workflow: many rollouts"),
    names.GANG_JOB: (GangJobInput, "input of the workflow: one job of several pods"),
    "RolloutTask": (RolloutTask, "a line of a batch's task file"),
    "Profile": (Profile, "an entry of a profiles file"),
    "Budget": (Budget, "argument of the pool manager's signal set_budget"),
    "CommandResult": (CommandResult, f"result of {names.TOOL_CALL}"),
    "GangJobResult": (GangJobResult, f"result of {names.GANG_JOB}"),
    "RolloutResult": (RolloutResult, f"result of {names.ROLLOUT}, and each file of a results folder"),
    "RolloutBatchResult": (RolloutBatchResult, f"result of {names.ROLLOUT_BATCH}"),
}
"""What `emberpool schema NAME` prints, with a line that says what it is of."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of one of SCHEMAS.

    Raises:
        KeyError: there is none of that name.
    """
    model, purpose = SCHEMAS[name]
    written_by_us = purpose.startswith("result")
    schema = model.model_json_schema(mode="serialization" if written_by_us else "validation")
    described = {one.__name__: descriptions(one) for one in _with_parts(model)}
    _describe(schema, described.get(model.__name__, {}))
    for title, part in cast(dict[str, dict[str, Any]], schema.get("$defs", {})).items():
        _describe(part, described.get(title, {}))
    return {"$schema": DIALECT, **schema, "title": name, "$comment": purpose}


def _describe(schema: dict[str, Any], told: Mapping[str, str]) -> None:
    for field, description in told.items():
        if field in schema.get("properties", {}):
            schema["properties"][field].setdefault("description", description)


def _with_parts(model: type[BaseModel]) -> Iterable[type[BaseModel]]:
    """The model and every model that its fields can hold."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[Any] = [model]
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__name__ not in found:
            found[kind.__name__] = kind
            waiting += [field.annotation for field in kind.model_fields.values()]
    return found.values()


def descriptions(model: type) -> Mapping[str, str]:
    """The docstring below each field of a model, or below each member of an enumeration, by its name."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    if not isinstance(body, ast.ClassDef):
        return {}
    found: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign | ast.Assign) and isinstance(after, ast.Expr):
            target = before.target if isinstance(before, ast.AnnAssign) else before.targets[0]
            text = after.value.value if isinstance(after.value, ast.Constant) else None
            if isinstance(target, ast.Name) and isinstance(text, str):
                found[target.id] = " ".join(text.split())
    return found
