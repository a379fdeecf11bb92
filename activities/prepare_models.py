"""What goes into `emberpool.prepare_job`; its answer is a CallOutput."""

from pydantic import Field

from emberpool.activities.models import BindInput
from emberpool.pool.model.binding import Bundle, Requirements, SecretRef, Secrets


class PrepareInput(BindInput):
    """Bind code, dependencies and secrets at job start, with environment and files, in this order: bundle, files."""

    bundle: Bundle | None = None
    requirements: Requirements = ""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])
    """References only: what they refer to is looked up by the worker and goes to the pod."""
