"""Narrows what JSON gave to the two shapes that have insides."""

from typing import Any, Dict, List, Optional


def as_object(value: Any) -> Optional[Dict[str, Any]]:
    """The value if it is an object, else None."""
    if not isinstance(value, dict):
        return None
    fields: Dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    return fields


def as_list(value: Any) -> Optional[List[Any]]:
    """The value if it is a list, else None."""
    if not isinstance(value, list):
        return None
    items: List[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return items
