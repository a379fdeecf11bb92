"""Checks the body of an exec call before anything is started."""

import base64
import binascii
import math
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from emberpool.pool.emberd.refusal import bad_request
from emberpool.pool.emberd.shape import as_list, as_object

MAX_OUTPUT = 16 * 1024 * 1024


class Request(NamedTuple):
    """What to run, checked, with the whole environment."""

    id: str
    argv: "list[str]"
    env: Dict[str, str]
    cwd: str
    stdin: bytes
    time_limit_s: float
    output_limit: int
    title: str
    stdin_open: bool = False
    """Whether stdin stays open for `write` after the first bytes."""
    tty: "Optional[tuple[int, int]]" = None
    """Rows and columns: the command has a terminal, and its output is one stream."""
    unlimited: bool = False
    """It runs until it ends or the lease does."""
    extra: "tuple[int, ...]" = ()
    """Further open files: the command finds four as 6 to 9, the shim keeps a fifth."""
    stdin_path: str = ""
    """A file that is stdin instead, opened in the room; empty for none."""

    @property
    def shim_may_stay(self) -> bool:
        """For another command. Not with a terminal, whose session it leads, nor with files that it has to keep."""
        return self.tty is None and not self.extra

    def for_shim(self) -> Dict[str, Any]:
        """What a shim needs to know; its files come with it."""
        return {
            "argv": self.argv,
            "env": self.env,
            "cwd": self.cwd,
            "tty": self.tty is not None,
            "stdin_path": self.stdin_path,
            "stay": self.shim_may_stay,
        }


def parse(body: Dict[str, Any], env: Dict[str, str], work: str, ceiling_s: float) -> Request:
    """The request with its whole environment; its time limit is clamped to `ceiling_s`.

    Raises:
        Refused: 400, naming the field.
    """
    argv = _argv(body)
    cwd = os.path.join(work, checked_text("cwd", body["cwd"])) if body.get("cwd") else work
    return Request(
        id=checked_id(body),
        argv=argv,
        env={**env, **checked_env(body.get("env") or {})},
        cwd=cwd,
        stdin=decoded("stdin", body.get("stdin") or ""),
        stdin_path=os.path.join(work, checked_text("stdin_path", body["stdin_path"])) if body.get("stdin_path") else "",
        time_limit_s=min(above_0("time_limit_s", body.get("time_limit_s", 60.0)), ceiling_s),
        output_limit=output_limit(body.get("output_limit", 262144)),
        title=" ".join((body.get("shell") or " ".join(argv)).split())[:200],
        stdin_open=bool(body.get("stdin_open", False)),
        tty=window(body, "tty_") if body.get("tty") else None,
        unlimited=bool(body.get("background", False)),
    )


def window(body: Dict[str, Any], prefix: str = "") -> Tuple[int, int]:
    """Rows and columns of a terminal."""
    rows, cols = body.get(prefix + "rows", 24), body.get(prefix + "cols", 80)
    for number in (rows, cols):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 65536:
            raise bad_request(prefix + "rows", "rows and cols must lie between 1 and 65535")
    return rows, cols


def wait_s(body: Dict[str, Any]) -> float:
    """How long the call may wait for an end."""
    value = body.get("wait_s", 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise bad_request("wait_s", "must be seconds, 0 or more")
    return min(float(value), 300.0)


def checked_env(env: Any) -> Dict[str, str]:
    """Names and values that execve can take."""
    texts = as_object(env)
    if texts is None:
        raise bad_request("env", "must be an object of texts")
    for name, value in texts.items():
        checked_text("env", name)
        checked_text(f"env.{name}", value)
        if not name or "=" in name:
            raise bad_request("env", "a name must be non-empty and hold no '='")
    return texts


def decoded(field: str, text: Any) -> bytes:
    """Base64 to bytes."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise bad_request(field, "is no base64") from None


def checked_id(body: Dict[str, Any]) -> str:
    """The id that the caller gave."""
    value = checked_text("id", body.get("id"))
    if not 0 < len(value) <= 1000:
        raise bad_request("id", "must have 1 to 1000 characters")
    return value


def _argv(body: Dict[str, Any]) -> List[str]:
    argv = as_list(body.get("argv"))
    shell: Optional[Any] = body.get("shell")
    if (body.get("argv") is None) == (shell is None):
        raise bad_request("argv", "give either argv or shell")
    if shell is not None:
        return ["/bin/sh", "-c", checked_text("shell", shell)]
    if not argv:
        raise bad_request("argv", "must be a list that is not empty")
    return [checked_text("argv", part) for part in argv]


def checked_text(field: str, value: Any) -> str:
    """A text that the kernel can take."""
    if not isinstance(value, str):
        raise bad_request(field, "must be a text")
    if "\0" in value:
        raise bad_request(field, "holds a NUL byte")
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise bad_request(field, "holds a lone surrogate") from None
    return value


def above_0(field: str, value: Any) -> float:
    """A finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise bad_request(field, "must be a number above 0")
    return float(value)


def output_limit(value: Any) -> int:
    """Bytes kept per stream."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_OUTPUT:
        raise bad_request("output_limit", f"must lie between 0 and {MAX_OUTPUT}")
    return value
