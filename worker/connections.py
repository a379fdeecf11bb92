"""Opening what a worker needs: Redis, the providers, the clients of pods. The one place where the parts are joined."""

import asyncio
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from emberpool.activities.applied import AppliedWeights
from emberpool.activities.blobs import Blobs
from emberpool.activities.line import WaitingLine
from emberpool.activities.metrics import Metrics
from emberpool.activities.pools import Pool
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.connection import connect
from emberpool.pool.index.profile_store import ProfileStore
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.index.under_way import AGAIN_S
from emberpool.pool.layers.source import LayerSource
from emberpool.pool.layers.store import LayerStore
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile, ProviderKind
from emberpool.pool.providers.kubernetes.access import Access, KubernetesApi
from emberpool.pool.providers.kubernetes.gangs import Gangs
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.pool.providers.kubernetes.queue import KueueQueue
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.pool.providers.provider import Provider
from emberpool.pool.secrets import SecretSource
from emberpool.worker.settings import Settings


async def open_pools(settings: Settings, stack: AsyncExitStack, metrics: Metrics | None = None) -> list[Pool]:
    """A pool per profile, closed with the stack: of the settings' profiles, or else of those that were applied.

    Raises:
        InvalidInput: a setting is missing or wrong; it is named.
        PoolUnavailable: Redis or a provider cannot be reached.
    """
    key = settings.pool_key()
    client = await stack.enter_async_context(EmberdClient(key, settings.trust()))
    redis = await connect(settings.redis_url)
    stack.push_async_callback(redis.aclose)
    profiles, applied = settings.all_profiles(), None
    if not profiles:
        store = ProfileStore(redis, settings.deployment)
        profiles, applied = await store.read(), AppliedWeights(store)
    if not profiles:
        raise InvalidInput(
            "profiles_file",
            "none is given, nor was one applied: write one, and name its file or `emberpool profile apply` it",
        )
    if applied is not None:
        following = asyncio.create_task(applied.follow(), name="emberpool-applied-weights")
        stack.push_async_callback(_ended, following)
    pools: list[Pool] = []
    for profile in profiles:
        index = RedisIndex(redis, settings.deployment, profile.name)
        stack.push_async_callback(index.aclose)
        provider = open_provider(profile, settings)
        stack.push_async_callback(provider.aclose)
        line = WaitingLine(index)
        listening = asyncio.create_task(line.listen(), name=f"emberpool-line-{profile.name}")
        stack.push_async_callback(_ended, listening)
        pool = Pool(
            profile=profile,
            index=index,
            provider=provider,
            client=client,
            line=line,
            deployment=settings.deployment,
            tenant=settings.tenant,
            pool_key=key,
            metrics=(metrics or Metrics()).of(profile.name),
            gangs=open_gangs(profile, settings, stack),
            applied=applied,
            queue=open_queue(profile, settings, stack),
        )
        stack.push_async_callback(pool.afterwards.aclose)
        stack.push_async_callback(pool.rebuilder.aclose)
        pools.append(pool)
    return pools


def open_layers(settings: Settings) -> tuple[LayerSource, SecretSource]:
    """Where bundles, dependencies and secrets of jobs come from. Opens nothing yet."""
    folder = settings.layer_dir or Path(tempfile.gettempdir()) / f"emberpool-layers-{os.getuid()}"
    store = LayerStore(folder, settings.layer_mb * 1024 * 1024)
    blobs = Blobs(settings.blob_url, settings.allowed_urls)
    source = LayerSource(store, lambda field, url: blobs.place(field, url).url)
    return source, SecretSource(settings.secret_env_prefix, settings.secret_dir)


def open_queue(profile: Profile, settings: Settings, stack: AsyncExitStack) -> KueueQueue | None:
    """The queue that a profile names, closed with the stack. Opens nothing yet."""
    queue = profile.kubernetes.queue
    if queue is None or profile.provider is not ProviderKind.KUBERNETES:
        return None
    api = KubernetesApi(kubernetes_access(settings))
    stack.push_async_callback(api.aclose)
    return KueueQueue(api, queue.cluster_queue)


def open_gangs(profile: Profile, settings: Settings, stack: AsyncExitStack) -> Gangs | None:
    """What connects the pods of a profile's gangs in a cluster, closed with the stack. Opens nothing yet."""
    if not profile.gang_peers or profile.provider is not ProviderKind.KUBERNETES:
        return None
    api = KubernetesApi(kubernetes_access(settings))
    stack.push_async_callback(api.aclose)
    return Gangs(api, profile.name, settings.deployment)


def kubernetes_access(settings: Settings) -> Access:
    """Which cluster, and which namespace of it."""
    config = str(settings.kubernetes_config or "")
    return Access(namespace=settings.kubernetes_namespace, kubeconfig=config, context=settings.kubernetes_context)


def open_provider(profile: Profile, settings: Settings) -> Provider:
    """The provider that a profile names.

    Raises:
        InvalidInput: the provider is not available here, or a setting that it needs is missing.
    """
    if profile.provider is ProviderKind.KUBERNETES:
        if profile.kubernetes.tls_secret and settings.tls_ca_file is None:
            raise InvalidInput(
                "tls_ca_file",
                f"is not set, and profile {profile.name!r} has kubernetes.tls_secret: name the authority's file",
            )
        key, trust = settings.pool_key(), settings.trust()
        return KubernetesProvider(profile, kubernetes_access(settings), key, settings.deployment, trust=trust)
    if settings.supervisor_socket is None:
        raise InvalidInput(
            "supervisor_socket", f"profile {profile.name!r} is local: start `emberpool dev`, or name its socket"
        )
    return LocalProvider(profile, settings.supervisor_socket, settings.deployment)


async def _ended(task: asyncio.Task[None]) -> None:
    while not task.done():
        # Again: one cancellation may be noticed only when the blocking read is over (pool/index/under_way.py).
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_S)
