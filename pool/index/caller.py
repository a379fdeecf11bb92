"""Runs the index's scripts by hash, and sends the text where the server does not know it (CSenshi/nestjs-redis#15)."""

import hashlib
from collections.abc import Sequence
from typing import cast

from redis.exceptions import NoScriptError

from emberpool.pool.index.connection import IndexRedis, trouble_named
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.scripts import Script, script_text
from emberpool.pool.model.errors import IndexRebuilding

Argument = str | int


class ScriptCaller:
    """The scripts of one pool."""

    def __init__(self, redis: IndexRedis, base: str, limits: IndexLimits) -> None:
        self._redis, self._generation_key = redis, f"{base}generation"
        self._texts = {script: script_text(script, limits) for script in Script}
        self._hashes = {
            script: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            for script, text in self._texts.items()
        }

    async def __call__(self, script: Script, *arguments: Argument) -> Sequence[str]:
        """Run a script; one round trip once the server knows it.

        Raises:
            PoolUnavailable: Redis cannot be reached or takes no writes.
        """
        key, words = self._generation_key, [str(argument) for argument in arguments]
        async with trouble_named():
            try:
                reply = await self._redis.run_script(self._hashes[script], key, words)
            except NoScriptError:
                reply = await self._redis.commands.eval(self._texts[script], 1, key, *words)
        return cast("Sequence[str]", reply)

    async def built(self, script: Script, *arguments: Argument) -> Sequence[str]:
        """Run a script that needs a generation.

        Raises:
            IndexRebuilding: there is none.
            PoolUnavailable: Redis cannot be reached or takes no writes.
        """
        reply = await self(script, *arguments)
        if reply[0] == "rebuilding":
            raise IndexRebuilding("the index has no generation")
        return reply
