"""Models as tables: field, type, default, meaning."""

import inspect
import re
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from emberpool.worker.schema import descriptions
from reference.markdown import code, one_line, table


def fields(model: type[BaseModel], prefix: str = "") -> str:
    """A row per field; `prefix` goes before each name."""
    told = descriptions(model)
    rows = [
        (code(prefix + name), _kind(field.annotation), _default(field), told.get(name, ""))
        for name, field in model.model_fields.items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def members(kind: type[Enum], told: dict[str, str]) -> str:
    """A row per member of an enumeration."""
    return table(("value", "meaning"), [(code(str(member.value)), told.get(member.name, "")) for member in kind])


def enumerations(model: type[BaseModel]) -> list[type[Enum]]:
    """The enumerations among the types of a model's own fields."""
    found: dict[str, type[Enum]] = {}
    for field in model.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Enum):
                found[kind.__name__] = kind
    return list(found.values())


def summary(thing: object) -> str:
    """The first paragraph of a docstring."""
    return one_line((inspect.getdoc(thing) or "").split("\n\n")[0])


def _kind(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return code(annotation.__name__)
    return code(re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(annotation)))


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return code(repr(field.get_default(call_default_factory=True, validated_data={})))
    if field.default is PydanticUndefined:
        return "required"
    if isinstance(field.default, BaseModel):
        return "see below"
    return code(str(field.default.value) if isinstance(field.default, Enum) else repr(field.default))
