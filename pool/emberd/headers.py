"""The head of an HTTP request, read by a few lines: the standard library makes a mail of it, which costs more than all
else that emberd does for a call."""

import io
from typing import Dict

from emberpool.pool.emberd.refusal import Refused, bad_request

MOST_LINES = 100
MOST_BYTES = 16 * 1024
"""Of a whole head, its first line among them: nobody has proved anything before its end. A path of 4,096 bytes, the
longest that there is, takes 12 KiB of it when each is escaped."""


def first_line(lines: io.BufferedIOBase) -> bytes:
    """The request's own line as it came; empty if the connection has ended, too long if `read` is to refuse it."""
    return lines.readline(MOST_BYTES + 1)


def read(lines: io.BufferedIOBase, before: int) -> Dict[str, str]:
    """Values by name in lower case, up to the empty line that ends them; of a name that comes twice the first.

    `before`: bytes of the head that were read before these.

    Raises:
        Refused: 431 the head is too long; 400 these are no headers.
    """
    found: Dict[str, str] = {}
    left = MOST_BYTES - before
    for _ in range(MOST_LINES):
        line = lines.readline(max(left, 0) + 1)
        left -= len(line)
        if left < 0:
            break
        if line in (b"\r\n", b"\n"):
            return found
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip() or not line.endswith(b"\n"):
            raise bad_request("headers", "a line is cut, or is no header")
        found.setdefault(name.lower(), value.strip())
    raise Refused(431, "head_too_large", f"a head may have {MOST_BYTES} bytes and {MOST_LINES} lines")
