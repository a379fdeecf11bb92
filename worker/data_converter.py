"""The data converter that a setting names: how programs that are started from a shell come to one's own codec."""

import importlib
from typing import cast

from temporalio.converter import DataConverter

from emberpool.pool.model.errors import InvalidInput

FIELD = "data_converter"


def load_data_converter(name: str) -> DataConverter | None:
    """What `MODULE:NAME` names, or returns if it is a function; None if the name is empty.

    Raises:
        InvalidInput: it cannot be had, or is none.
    """
    if not name:
        return None
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InvalidInput(FIELD, f"{name!r} must be MODULE:NAME, as in acme.codec:converter")
    try:
        found = cast(object, getattr(importlib.import_module(module), attribute))
        made = found() if callable(found) else found
    except Exception as error:  # the module is a user's: whatever goes wrong in it is told
        raise InvalidInput(FIELD, f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(made, DataConverter):
        raise InvalidInput(FIELD, f"{name} is a {type(made).__name__}, not a temporalio DataConverter")
    return made
