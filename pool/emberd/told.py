"""How emberd is told its configuration: on standard input, or by files that Kubernetes mounts in a folder."""

import json
import os
import sys
from typing import List

from emberpool.pool.emberd.shape import as_object


def told(arguments: List[str]) -> bytes:
    """The configuration's JSON; `arguments` are those of the command line.

    Raises:
        OSError, ValueError: the folder's files cannot be read, or hold no JSON object.
    """
    return _mounted(arguments[0]) if arguments else _standard_input()


def _mounted(folder: str) -> bytes:
    """`config`, and `uid`, which only the API server knows, and only after it was given the configuration."""
    with open(os.path.join(folder, "config"), "rb") as file:
        data = as_object(json.load(file))
    if data is None:
        raise ValueError(f"{folder}/config: must be a JSON object")
    with open(os.path.join(folder, "uid")) as file:
        data["uid"] = file.read().strip()
    return json.dumps(data).encode()


def _standard_input() -> bytes:
    text = sys.stdin.buffer.read()
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return text
