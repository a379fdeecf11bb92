"""From pydantic's error to ours: the first wrong field by name, with its remedy."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from emberpool.pool.model.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], **fields: object) -> M:
    """Build a model.

    Raises:
        InvalidInput: a field is wrong; the first one is named.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise invalid_input(error) from error


def invalid_input(error: ValidationError, where: str = "input") -> InvalidInput:
    """The first wrong field of a pydantic error as InvalidInput."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or where
    return InvalidInput(field, first["msg"].removeprefix("Value error, "))
