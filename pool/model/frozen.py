"""The one model configuration: frozen, unknown fields refused where people write them, bytes kept as bytes."""

import base64
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, WithJsonSchema


class Frozen(BaseModel):
    """Base of every model that crosses a process: immutable, and tolerant of fields that newer peers add."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Strict(BaseModel):
    """Base of everything a person writes: immutable, and a misspelt field is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _decode(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError("expected bytes, or a base64 string")


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


Bytes = Annotated[
    bytes,
    PlainValidator(_decode),
    PlainSerializer(_encode, return_type=str),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
"""Bytes that survive every JSON converter: base64 on the wire (sdk-python#1449 is what plain bytes do)."""
