"""A deployment's profiles in Redis: written by `emberpool profile apply`, read by workers that are given no file."""

from collections.abc import Iterable
from typing import Any, cast

from pydantic import ValidationError

from emberpool.pool.index.connection import IndexRedis, trouble_named
from emberpool.pool.index.keys import profiles_key
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile


class ProfileStore:
    """One hash, profile name to JSON. It is no part of an index, and survives the loss of one."""

    def __init__(self, redis: IndexRedis, deployment: str) -> None:
        """
        Raises:
            InvalidInput: the deployment cannot be part of a key.
        """
        self._redis, self._key = redis, profiles_key(deployment)

    async def write(self, profiles: Iterable[Profile]) -> None:
        """Add these, or replace those of the same names, all at once.

        Raises:
            PoolUnavailable: Redis cannot be reached.
        """
        fields = {profile.name: profile.model_dump_json() for profile in profiles}
        async with trouble_named():
            await self._redis.commands.hset(self._key, mapping=cast("dict[Any, Any]", fields))

    async def read(self) -> tuple[Profile, ...]:
        """All of them, by name.

        Raises:
            InvalidInput: one was written by a version that knows more fields, or is damaged; it is named.
            PoolUnavailable: Redis cannot be reached.
        """
        async with trouble_named():
            found = cast("dict[str, str]", await self._redis.commands.hgetall(self._key))
        return tuple(_parsed(name, text) for name, text in sorted(found.items()))


def _parsed(name: str, text: str) -> Profile:
    try:
        return Profile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"profile {name!r} in Redis", f"{field}: {first['msg']}; apply it again") from error
