"""Inputs of workflows that people start by hand: JSON from Temporal's own command line, or from the UI's form.

Temporal fails a workflow *task* whose input cannot be decoded, and tries it again for ever: whoever mistyped a field
sees a workflow that hangs. So these workflows take the payload as it came, and fail once, naming the field.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from emberpool.activities import names
from emberpool.activities.errors import to_temporal
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.inputs import invalid_input

M = TypeVar("M", bound=BaseModel)

if TYPE_CHECKING:
    from typing import Annotated

    Plain = Annotated[M, "as it came"]
    """Annotation of a parameter that callers give a model and that arrives undecoded; see `parsed`."""
else:

    class Plain(Generic[M]):
        """Annotation of a parameter that callers give a model and that arrives undecoded; see `parsed`."""

        def __class_getitem__(cls, model: object) -> type:
            # The SDK decodes by the annotation that it finds at runtime.
            return RawValue


PLAIN = frozenset({names.TOOL_CALL, names.ROLLOUT, names.ROLLOUT_BATCH})
"""The workflows with such a parameter; each takes one input."""

NOT_GIVEN = cast(Any, RawValue(Payload()))
"""Default of such a parameter, for a start without any input."""


def parsed(model: type[M], given: M) -> M:
    """The model that the caller meant.

    Raises:
        ApplicationError: of type InvalidInput, not retryable: the first wrong field is named.
    """
    try:
        return _decoded(model, cast(object, given))
    except InvalidInput as error:
        raise to_temporal(error) from error
    except ValidationError as error:
        raise to_temporal(_told(model, error)) from error


def refuse_several(workflow_type: str, given: Sequence[object]) -> None:
    """Python could not even call a workflow with more inputs than it takes: its task would fail for ever.

    Raises:
        ApplicationError: of type InvalidInput, not retryable, if one of the PLAIN workflows is given several inputs.
    """
    if workflow_type in PLAIN and len(given) > 1:
        problem = f"{len(given)} were given: give one JSON object that holds all fields, with one --input"
        raise to_temporal(InvalidInput("input", problem))


def _decoded(model: type[M], given: object) -> M:
    if isinstance(given, model):
        return given
    payload = given.payload if isinstance(given, RawValue) else Payload()
    if payload.metadata.get("encoding", b"").startswith(b"json/"):
        return model.model_validate_json(payload.data)
    if not payload.data:
        raise InvalidInput("input", f"is missing: give one JSON object ({model.__name__})")
    # Not JSON: a converter of the user's own knows what it wrote.
    decoded: object = workflow.payload_converter().from_payload(payload)
    return model.model_validate(decoded)


def _told(model: type[BaseModel], error: ValidationError) -> InvalidInput:
    first = error.errors()[0]
    told = invalid_input(error)
    if first["type"] == "extra_forbidden":
        fields = ", ".join(model.model_fields) if len(first["loc"]) == 1 else "those of its schema"
        return InvalidInput(told.field, f"no such field; there are: {fields}")
    if first["type"] == "missing":
        return InvalidInput(told.field, "is missing")
    return told
