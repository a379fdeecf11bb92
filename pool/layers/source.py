"""Every layer that a job may be bound to, made or found on the worker's disk."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from emberpool.pool.layers.bundles import bundle_maker
from emberpool.pool.layers.dependencies import Resolver, site_maker, site_name
from emberpool.pool.layers.python import JobPython
from emberpool.pool.layers.store import Layer, LayerStore
from emberpool.pool.model.binding import Bundle

PythonKey = tuple[str, str]
"""Profile and image: all their pods have the same Python."""


class LayerSource:
    """One per worker."""

    def __init__(self, store: LayerStore, allowed: Callable[[str, str], str]) -> None:
        """`allowed(field, url)` gives the URL to open, or raises InvalidInput: a workflow's input must not read the
        worker's own files."""
        self._store, self._allowed = store, allowed
        self._resolver = Resolver()
        self._pythons: dict[PythonKey, JobPython] = {}

    def bundle(self, bundle: Bundle) -> AbstractAsyncContextManager[Layer]:
        """The bundle's archive. Raises InvalidInput (also where it is known, but this worker may not open its URL),
        PoolUnavailable."""
        url = self._allowed("bundle.url", bundle.url)
        return self._store.layer(f"bundle-{bundle.sha256}", bundle_maker(bundle.model_copy(update={"url": url})))

    async def site(self, requirements: str, python: JobPython) -> AbstractAsyncContextManager[Layer]:
        """The packages as a folder for `python`. Raises InvalidInput, PoolUnavailable."""
        lock = await self._resolver.lock(requirements, python)
        return self._store.layer(site_name(lock, python), site_maker(lock, python))

    async def python(self, of: PythonKey, ask: Callable[[], Awaitable[JobPython]]) -> JobPython:
        """The Python of a profile's image, asked once."""
        if of not in self._pythons:
            self._pythons[of] = await ask()
        return self._pythons[of]
