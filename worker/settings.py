"""Every setting of a worker, in one frozen tree: built here, passed down; nothing else reads the environment.

Temporal's own address, namespace and TLS come from Temporal's environment configuration (`temporalio.envconfig`).
"""

import os
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from emberpool.activities.names import DEFAULT_TASK_QUEUE
from emberpool.pool.client.trust import Trust, trust_in
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile, parse_profiles


class CommandSettings(BaseSettings):
    """What of a worker's settings commands read that speak with Temporal alone."""

    model_config = SettingsConfigDict(env_prefix="EMBERPOOL_", frozen=True, extra="forbid")

    data_converter: str = ""
    """See Settings."""


class Settings(BaseSettings):
    """Settings of one worker process. Each is read from `EMBERPOOL_<NAME>`, unless given to the constructor."""

    model_config = SettingsConfigDict(env_prefix="EMBERPOOL_", frozen=True, extra="forbid")

    deployment: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    """Name of this trust domain: part of every key, label and workflow id, so that two never touch each other's
    pods."""
    tenant: str = "default"
    """Whom this worker's task queue serves. Part of every tag: equal caller names of two tenants never share a pod."""
    task_queue: str = DEFAULT_TASK_QUEUE
    """NAME of the four task queues NAME, NAME-control, NAME-wait and NAME-tools."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """`redis://`, `rediss://`, `unix://`, `sentinel://HOST:PORT,.../SERVICE` or `redis-cluster://HOST:PORT,...`,
    with its password."""
    pool_key_file: Path | None = None
    """File with the pool key: 32 random bytes in hex, readable by the worker only. The key signs every request to a
    pod."""
    supervisor_socket: Path | None = None
    """Socket of the supervisor that owns local pods; needed by profiles of provider local."""
    kubernetes_namespace: str = ""
    """Namespace of pods of provider kubernetes; empty is the kubeconfig's, or the worker's own. One trust domain each:
    whoever may read pods in it may sign for them."""
    kubernetes_config: Path | None = None
    """kubeconfig file; without it the worker's own account if it runs in a pod, else what kubectl would take."""
    kubernetes_context: str = ""
    """Context of that file; empty is its current one."""
    data_converter: str = ""
    """MODULE:NAME of a temporalio DataConverter, or of a function that returns one, with a payload codec, external
    storage or a failure converter of your own. The worker and the command line import it. Empty: the SDK's."""
    tls_ca_file: Path | None = None
    """Certificates, in PEM, of the authorities that vouch for emberds of profiles with `kubernetes.tls_secret`."""
    tls_server_name: str = Field(default="emberd", min_length=1)
    """The DNS name that their certificates have: one for all, since pods have none of their own."""
    tls_only: bool = False
    """Whether pods that do not speak TLS are left alone, local ones aside. Set it once the last of them is gone."""
    profiles_file: Path | None = None
    """YAML file with the profiles that this worker serves. Without it and without `profiles` it serves those that
    `emberpool profile apply` wrote."""
    profiles: tuple[Profile, ...] = ()
    """Profiles given in code; `profiles_file` is added to them."""
    max_concurrent_commands: int = Field(default=200, ge=1)
    """Commands at once in this worker; each waits on a pod and costs little."""
    max_concurrent_control: int = Field(default=100, ge=1)
    """Files, releases, recycles and plans at once; apart from commands, so that long ones never starve them."""
    max_concurrent_waits: int = Field(default=1000, ge=1)
    """Requests waiting in line in this worker."""
    max_concurrent_tools: int = Field(default=200, ge=1)
    """One-shot tool calls at once in this worker, their waits in line included."""
    heartbeat_s: float = Field(default=3.0, gt=0.1)
    """Seconds between heartbeats of a running command: how soon a cancellation reaches it."""
    sweep_quiet_s: float = Field(default=30.0, gt=0)
    """A lease that was quiet for this long has its holder looked up in Temporal, then at doubling gaps up to 5 min."""
    graceful_shutdown_s: float = Field(default=10.0, ge=0)
    """Seconds that a stopping worker gives its activities; commands go on in their pods and are picked up again."""
    metrics_address: str = Field(default="", pattern=r"^$|^[^\s/]+:\d{1,5}$")
    """HOST:PORT to serve Prometheus metrics on, at /metrics: emberpool's and those of Temporal's SDK; and /healthz and
    /readyz for whoever runs the worker. Port 0 is any free one, empty serves none. One per process; whoever reaches it
    can read it, so keep it on a private network."""
    search_attributes: bool = False
    """Whether workflows get search attributes (EmberpoolCaller, ...). Needs them registered; a worker that finds them
    missing says so and goes on without."""
    blob_url: str = ""
    """fsspec URL of the folder or prefix where uploads come from and downloads go to: `s3://bucket/prefix`,
    `file:///folder`. Workflows may name whatever lies below it. Empty: there is none."""
    allowed_urls: tuple[str, ...] = ()
    """Further prefixes of URLs that workflows may have this worker read and write, beside the blob store; a JSON
    list in the environment. What lies below them is as open to whoever starts workflows as it is to the worker."""
    layer_dir: Path | None = None
    """Folder of the worker's own for bundles and packages; default `emberpool-layers-UID` in the temporary folder."""
    layer_mb: int = Field(default=8192, ge=1)
    """MiB that they may take on disk; those that were used longest ago are deleted."""
    secret_env_prefix: str = ""
    """Beginning of the names of environment variables that jobs may be given by reference (`env:NAME`); empty: none."""
    secret_dir: Path | None = None
    """Folder whose files jobs may be given by reference (`file:NAME`), such as a mounted Kubernetes secret."""
    max_transfer_mb: int = Field(default=10_240, ge=1)
    """MiB that one download may have. What comes into a pod is bounded by its profile's limits.file_mb."""
    start_pool_managers: bool = True
    """Whether this worker starts the pool managers of its profiles if they do not run yet."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [profile.name for profile in self.all_profiles()]
        if len(set(names)) != len(names):
            raise ValueError("profiles: two profiles share a name, in code or in profiles_file")
        return self

    @model_validator(mode="after")
    def _tls_has_an_authority(self) -> Self:
        if self.tls_only and self.tls_ca_file is None:
            raise ValueError("tls_only needs tls_ca_file: without an authority no pod could be spoken to")
        return self

    def trust(self) -> Trust | None:
        """How pods that speak TLS are spoken to; None if the settings do not say.

        Raises:
            InvalidInput: the file of authorities cannot be used.
        """
        if self.tls_ca_file is None:
            return None
        return trust_in(self.tls_ca_file, self.tls_server_name, self.tls_only)

    def all_profiles(self) -> tuple[Profile, ...]:
        """The profiles given in code and those of the file.

        Raises:
            InvalidInput: the file cannot be read or is wrong; the field is named.
        """
        if self.profiles_file is None:
            return self.profiles
        try:
            text = self.profiles_file.read_text()
        except OSError as error:
            raise InvalidInput("profiles_file", f"cannot be read: {error}") from error
        return self.profiles + parse_profiles(text, str(self.profiles_file))

    def pool_key(self) -> bytes:
        """The pool key.

        Raises:
            InvalidInput: there is no file, others can read it, or it does not hold 32 bytes in hex.
        """
        if self.pool_key_file is None:
            raise InvalidInput(
                "pool_key_file", "is not set: make one with `openssl rand -hex 32 > FILE; chmod 600 FILE`"
            )
        try:
            stat = os.stat(self.pool_key_file)
            mode = stat.st_mode
            key = bytes.fromhex(self.pool_key_file.read_text().strip())
        except (OSError, ValueError) as error:
            raise InvalidInput("pool_key_file", f"{self.pool_key_file} holds no key in hex: {error}") from error
        # A mounted Secret belongs to root, and is ours by group alone.
        if mode & (0o007 if stat.st_uid != os.geteuid() else 0o077):
            raise InvalidInput("pool_key_file", f"{self.pool_key_file} can be read by others: chmod 600")
        if len(key) < 32:
            raise InvalidInput("pool_key_file", f"{self.pool_key_file} holds fewer than 32 bytes")
        return key
