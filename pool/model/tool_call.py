"""One command in a sandbox of its own: the input of the workflow EmberpoolToolCall."""

from pydantic import Field

from emberpool.pool.model.binding import Binding, Bundle, Requirements, SecretRef, Secrets
from emberpool.pool.model.command import Command
from emberpool.pool.model.frozen import Strict
from emberpool.pool.model.rollout import TextFile


class ToolCallInput(Strict):
    """Input of the workflow EmberpoolToolCall."""

    profile: str
    """Name of the profile whose pool serves the call."""
    caller: str = Field(min_length=1)
    """Whose pods it may reuse: a used pod serves only the caller that used it last."""
    command: Command
    files: tuple[TextFile, ...] = ()
    """Written before the command runs."""
    image: str = ""
    """A name of the profile's images; empty means its base image."""
    reuse_key: str = ""
    """Splits one caller's pods further; a new key each time means a fresh pod each time."""
    wait_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds to wait in line before NoCapacity."""
    task_queue: str = "emberpool"
    """Name of emberpool's task queues."""
    bundle: Bundle | None = None
    """Code, put into the sandbox before the files."""
    requirements: Requirements = ""
    """Python packages that the command can import, as lines of a requirements file or a lock."""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])
    """Environment variables by reference to what the worker has: `{"API_KEY": "env:JOB_API_KEY"}`."""

    def binding(self) -> Binding:
        """What is bound before the command runs."""
        return Binding(bundle=self.bundle, requirements=self.requirements, secrets=self.secrets)
