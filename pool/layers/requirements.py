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
_HASH = re.compile(r"--hash=\S+")


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


def held_to(lock: str, requirements: str) -> str:
    """A resolved lock with the caller's own hashes for each package that the requirements give any for.

    uv's resolver passes over hashes of what it is asked for, and writes down those of whatever the index has: an
    installation from such a lock would hold nobody to a hash that the caller gave.
    """
    given: dict[str, set[str]] = {}
    for line in normal_requirements(requirements).splitlines():
        if hashes := _HASH.findall(line):
            given.setdefault(_name(line), set()).update(hashes)
    if not given:
        return lock
    lines = lock.replace("\\\n", " ").splitlines()
    return "".join(_pinned(line, given.get(_name(line)) or set(_HASH.findall(line))) for line in lines)


def _pinned(line: str, hashes: set[str]) -> str:
    """A line of a lock, laid out as uv does it."""
    return " \\\n    ".join([_HASH.sub("", line).strip(), *sorted(hashes)]) + "\n"


def _name(line: str) -> str:
    """The normal form of the name that a requirement begins with."""
    found = re.match(_NAME, line)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""
