"""Applying profiles to a deployment: they go into its Redis, and the managers that run hear of them."""

from collections.abc import Sequence

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from emberpool.activities import names
from emberpool.pool.index.connection import connect
from emberpool.pool.index.profile_store import ProfileStore
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile
from emberpool.worker.run import connect_client
from emberpool.worker.settings import Settings
from emberpool.workflows.pool_manager import Budget


async def apply_profiles(settings: Settings, profiles: Sequence[Profile]) -> set[str]:
    """Write the profiles and signal their managers; returns the names of those whose manager runs.

    Raises:
        InvalidInput: two of them share a name.
        PoolUnavailable: Redis cannot be reached; nothing was written.
        RuntimeError, RPCError: Temporal cannot be reached. The profiles are written: apply them again.
    """
    known = [profile.name for profile in profiles]
    for name in known:
        if known.count(name) > 1:
            raise InvalidInput("profiles", f"{name!r} stands twice: every profile needs a name of its own")
    async with await connect(settings.redis_url) as redis:
        await ProfileStore(redis, settings.deployment).write(profiles)
    client = await connect_client()
    return {profile.name for profile in profiles if await _tell(client, settings.deployment, profile)}


async def _tell(client: Client, deployment: str, profile: Profile) -> bool:
    """Whether the profile's manager runs, and has the signal."""
    said = Budget(max_pods=profile.max_pods, min_warm=profile.min_warm)
    manager = client.get_workflow_handle(names.pool_manager_id(deployment, profile.name))
    try:
        await manager.signal(names.APPLY_PROFILE, said)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True
