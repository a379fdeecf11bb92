"""What a job is bound to as it starts: code, dependencies, secrets. Never part of an image, so that pods stay alike."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, NewType

from pydantic import AfterValidator, Field, field_validator

from emberpool.pool.model.frozen import Strict

SecretRef = NewType("SecretRef", str)
"""Names a secret that the worker has: `env:NAME`, a variable of its environment, or `file:NAME`, a file of its folder
of secrets. Never the secret itself."""

_REF = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
MAX_REQUIREMENTS = 64 * 1024


class Bundle(Strict):
    """Code as a tar (also .gz, .bz2, .xz) or zip archive, by URL and content."""

    url: str = Field(min_length=1, max_length=4096)
    """fsspec URL of the archive, as the worker opens it; the worker's settings say which it may open."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the archive's bytes: whatever else lies at the URL is refused."""
    path: str = "/work"
    """Folder of the sandbox that it is unpacked into, for the job to change; a relative one is taken from /work. Empty:
    nowhere. It lies read-only under $EMBERPOOL_BUNDLE in any case."""

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("holds a NUL byte")
        return value


def _requirements(value: str) -> str:
    if len(value.encode("utf-8", "replace")) > MAX_REQUIREMENTS:
        raise ValueError(f"is over {MAX_REQUIREMENTS} bytes")
    return value


def _secrets(value: Mapping[str, SecretRef]) -> Mapping[str, SecretRef]:
    for name, ref in value.items():
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} cannot be an environment variable")
        if not _REF.fullmatch(ref) or ".." in ref.split(":", 1)[1].split("/"):
            # Not repeated: somebody may have given the secret itself.
            raise ValueError(f"{name} must refer to a secret, as env:NAME or file:NAME; the text given does not")
    return value


Requirements = Annotated[str, AfterValidator(_requirements)]
"""Lines of a requirements file, or a lock of one: names with versions, no options, paths or URLs."""
Secrets = Annotated[Mapping[str, SecretRef], AfterValidator(_secrets)]
"""Environment variables of the job, each by a reference to what the worker has."""


class Binding(Strict):
    """What every command of a sandbox finds. `fingerprint` names what of it the pod keeps for the caller's next job."""

    bundle: Bundle | None = None
    requirements: Requirements = ""
    """Python packages that the job can import, for the `python3` of its image."""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to bind."""
        return self.bundle is None and not self.requirements.strip() and not self.secrets

    def fingerprint(self) -> str:
        """Hash over bundle and requirements; empty if there is neither. Secrets are no part of it."""
        kept = [self.bundle.sha256 if self.bundle else "", normal_requirements(self.requirements)]
        return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:32] if any(kept) else ""


def bound_fields(binding: Binding | None) -> dict[str, Any]:
    """A binding as the fields of payloads that take one: bundle, requirements, secrets."""
    return {} if binding is None else {name: getattr(binding, name) for name in Binding.model_fields}


def normal_requirements(text: str) -> str:
    """Without comments, blank lines and order: texts that ask for the same are the same."""
    joined = text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line) for line in joined.splitlines())
    return "\n".join(sorted({" ".join(line.split()) for line in lines} - {""}))
