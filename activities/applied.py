"""What callers weigh, as it was applied last: the one thing of a profile that workers take up while they run."""

import asyncio
import logging
from collections.abc import Mapping

from emberpool.pool.index.profile_store import ProfileStore
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.profile import Profile

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""Pause between two looks: one small read of each worker, so that no claim asks for more than it did."""


class AppliedWeights:
    """Weights by profile, of a deployment whose profiles are in Redis. Run `follow` as long as the worker runs."""

    def __init__(self, store: ProfileStore) -> None:
        self._store = store
        self._by_profile: dict[str, Mapping[str, int]] = {}

    def of(self, profile: Profile) -> Mapping[str, int]:
        """The latest that is known; until then the profile's own."""
        return self._by_profile.get(profile.name, profile.weights)

    async def follow(self) -> None:
        """Look again and again, until cancelled. What cannot be read changes nothing, and is told once."""
        told = ""
        while True:
            try:
                for profile in await self._store.read():
                    self._by_profile[profile.name] = profile.weights
                trouble = ""
            except EmberpoolError as error:
                trouble = str(error)
            if trouble and trouble != told:
                log.warning("what callers weigh stays as it was: %s", trouble)
            told = trouble
            await asyncio.sleep(LOOK_S)
