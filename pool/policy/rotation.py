"""When a pod has lived long enough, whatever its resets prove: a new one has what nobody thought of checking."""

from emberpool.pool.model.profile import Profile
from emberpool.pool.model.recycle import Attestation

TOO_OLD = "too_old"
"""The reason that such a pod is drained for."""


def worn_by_age(profile: Profile, attestation: Attestation) -> str:
    """Why a pod that has just been reset is to go; empty if it may stay."""
    return TOO_OLD if profile.max_age_s is not None and attestation.age_s >= profile.max_age_s else ""
