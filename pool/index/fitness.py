"""Whether a server is fit to hold an index, by what its INFO says."""

import re
from collections.abc import Mapping
from typing import Any

from emberpool.pool.model.errors import InvalidInput

LEAST_VERSION = (6, 2)
"""The first that takes several wakes from a list at once (LPOP with a count)."""


def check_server(info: Mapping[str, Any]) -> None:
    """Refuse what cannot hold an index, or may drop it. What the server does not tell passes.

    Raises:
        InvalidInput: the server is too old, or its maxmemory-policy is not noeviction.
    """
    version = str(info.get("redis_version", ""))
    told = re.match(r"(\d+)\.(\d+)", version)
    if told and (int(told[1]), int(told[2])) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise InvalidInput("redis", f"the server is Redis {version}: use Redis {least} or later, or Valkey")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        raise InvalidInput("redis", f"maxmemory-policy is {policy!r}, so Redis may drop leases: set it to 'noeviction'")
