"""Judges the text of requirements before uv reads it.

uv runs on the worker, with the worker's files and network: a line may name packages and versions, and nothing
that makes uv read a file, open a URL or take an option.
"""

import re

from emberpool.pool.model.binding import normal_requirements
from emberpool.pool.model.errors import InvalidInput

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSIONS = r"(?:===|[<>=!~]=?)\s*[A-Za-z0-9.*+!_-]+"
_LINE = re.compile(
    rf"{_NAME}\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*"
    rf"(?:\(?\s*{_VERSIONS}(?:\s*,\s*{_VERSIONS})*\s*,?\s*\)?)?"
    r"\s*(?:;[\w\s.'\"<>=!~(),*+-]*?)?"
    r"(?:\s+--hash=[a-z0-9]+:[0-9a-f]+)*\s*"
)


def checked_requirements(text: str, field: str = "requirements") -> str:
    """The lines in their normal form.

    Raises:
        InvalidInput: a line is more than names, versions, markers and hashes; it is quoted.
    """
    normal = normal_requirements(text)
    for line in normal.splitlines():
        if not _LINE.fullmatch(line):
            raise InvalidInput(
                field, f"{line[:200]!r}: a line names a package and its versions; options, paths and URLs are refused"
            )
    return normal
