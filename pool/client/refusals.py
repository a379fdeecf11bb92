"""What emberd's refusals are to callers: one typed error each."""

import json
from typing import Any

from emberpool.pool.client.trust import untrusted
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import InvalidInput, PodRefused, PodUnreachable, SandboxFileError

FILE_WORDS = ("not_found", "too_large", "not_a_file", "file_refused", "bad_archive")


LONGEST_PATH = 4096
"""Bytes; a longer one is none to Linux, and would not fit into the head of a request."""


def path_bytes(path: str) -> bytes:
    """A path as the pod's kernel takes it. Raises InvalidInput, SandboxFileError."""
    try:
        data = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidInput("path", "holds a lone surrogate") from error
    if len(data) > LONGEST_PATH:
        raise SandboxFileError(path, "file_refused", f"File name too long: {len(data)} bytes")
    return data


def error_of(pod: PodAddress, status: int, body: bytes, path: str | None) -> Exception:
    """The error for an answer other than 200; `path` names the file that the call was about."""
    said: dict[str, Any] = json.loads(body)
    word, detail = str(said.get("error", "")), str(said.get("detail", ""))
    if status == 400:
        field, _, problem = detail.partition(": ")
        return InvalidInput(field, problem)
    if status == 409 or word == "unknown_execution":
        return PodRefused(word, detail)
    if path is not None and status in (404, 413, 422):
        return SandboxFileError(path, word, detail)
    return PodUnreachable(pod.name, f"answered {status} {word}: {detail}")


def unsigned(pod: PodAddress, status: int, body: bytes) -> PodUnreachable:
    """The error for an answer that the key does not vouch for. What it says is a hint at most."""
    if b'"tls_wanted"' in body[:200]:
        return untrusted(pod.name, "it speaks TLS, and was asked in the clear", sent=True)
    return PodUnreachable(pod.name, f"answered {status} without a valid signature")


def error_at_end(pod: PodAddress, word: str, detail: str, path: str) -> Exception:
    """The error that the last frame of a streamed answer tells."""
    if word in FILE_WORDS:
        return SandboxFileError(path, word, detail)
    if word in ("internal", ""):
        return PodUnreachable(pod.name, f"the stream ended with {word}: {detail}")
    return PodRefused(word, detail, sent=True)
