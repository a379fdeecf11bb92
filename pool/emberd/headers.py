"""The head of an HTTP request, read by a few lines: the standard library makes a mail of it, which costs more than all
else that emberd does for a call."""

import io
from typing import Dict, List

from emberpool.pool.emberd.refusal import Refused, bad_request

MOST_LINES = 100
MOST_BYTES = 16 * 1024
"""Of a whole head, its first line among them: nobody has proved anything before its end. A path of 4,096 bytes, the
longest that there is, takes 12 KiB of it when each is escaped."""


def first_line(lines: io.BufferedReader) -> bytes:
    """The request's own line as it came; empty if the connection has ended, too long if `read` is to refuse it."""
    return lines.readline(MOST_BYTES + 1)


def read(lines: io.BufferedReader, before: int) -> Dict[str, str]:
    """Values by name in lower case, up to the empty line that ends them; of a name that comes twice the first.

    `before`: bytes of the head that were read before these.

    Raises:
        Refused: 431 the head is too long; 400 these are no headers.
    """
    found: Dict[str, str] = {}
    for text in _at_hand(lines, MOST_BYTES - before):
        name, colon, value = text.partition(":")
        if not colon or not name or name != name.strip():
            raise bad_request("headers", "a line is cut, or is no header")
        found.setdefault(name.lower(), value.strip())
    if found:
        return found
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


def _at_hand(lines: io.BufferedReader, most: int) -> List[str]:
    """All lines of a head that has come whole and is plain, and its end taken with them; none of any other."""
    there = lines.peek(1)
    end = there.find(b"\r\n\r\n")
    if not 0 < end <= most - 4:
        return []
    parts = there[:end].decode("latin-1").split("\r\n")
    if len(parts) >= MOST_LINES or there.count(b"\n", 0, end) != len(parts) - 1:
        return []  # a line ends otherwise: each must be looked at as it comes
    lines.read(end + 4)
    return parts
