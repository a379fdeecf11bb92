"""The head of an HTTP request, read by a few lines: the standard library makes a mail of it, which costs more than all
else that emberd does for a call."""

import io
from typing import Dict

from emberpool.pool.emberd.refusal import bad_request

MOST_LINES = 100
MOST_BYTES = 65536
"""Of one line."""


def read(lines: io.BufferedIOBase) -> Dict[str, str]:
    """Values by name in lower case, up to the empty line that ends them; of a name that comes twice the first.

    Raises:
        Refused: they are no headers, or too many.
    """
    found: Dict[str, str] = {}
    for _ in range(MOST_LINES):
        line = lines.readline(MOST_BYTES + 1)
        if line in (b"\r\n", b"\n"):
            return found
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip() or not line.endswith(b"\n"):
            raise bad_request("headers", "a line is too long, is cut, or is no header")
        found.setdefault(name.lower(), value.strip())
    raise bad_request("headers", f"over {MOST_LINES} lines")
