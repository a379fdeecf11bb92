"""Secrets that the worker has: found by reference at the moment that a job needs them, never kept, never told."""

import os
from collections.abc import Mapping
from pathlib import Path

from emberpool.pool.model.binding import SecretRef
from emberpool.pool.model.errors import InvalidInput

MOST_BYTES = 64 * 1024


class SecretSource:
    """Variables of the worker's environment whose names begin with a prefix, and the files of one folder."""

    def __init__(self, env_prefix: str = "", folder: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        """An empty prefix allows no variable, no folder no file. `env` stands for the environment."""
        self._prefix, self._folder = env_prefix, folder
        self._env = os.environ if env is None else env

    def values(self, refs: Mapping[str, SecretRef]) -> dict[str, str]:
        """What each name refers to.

        Raises:
            InvalidInput: one of them cannot be had; name and reference are told, never a value.
        """
        return {name: self._value(f"secrets.{name}", ref) for name, ref in refs.items()}

    def _value(self, field: str, ref: SecretRef) -> str:
        kind, _, name = ref.partition(":")
        value = self._variable(field, ref, name) if kind == "env" else self._file(field, ref, name)
        if "\0" in value:
            raise InvalidInput(field, f"{ref} holds a NUL byte and cannot be an environment variable")
        return value

    def _variable(self, field: str, ref: SecretRef, name: str) -> str:
        if not self._prefix or not name.startswith(self._prefix):
            allowed = f"variables that begin with {self._prefix!r}" if self._prefix else "no variable"
            raise InvalidInput(field, f"{ref}: this worker gives {allowed} (its setting secret_env_prefix)")
        value = self._env.get(name)
        if value is None:
            raise InvalidInput(field, f"{ref} is not set in the worker's environment")
        return value

    def _file(self, field: str, ref: SecretRef, name: str) -> str:
        if self._folder is None:
            raise InvalidInput(field, f"{ref}: this worker gives no files (its setting secret_dir)")
        folder = self._folder.resolve()
        # Kubernetes mounts secrets as links within the folder; none may lead out of it.
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise InvalidInput(field, f"{ref}: there is no such file in the worker's secret_dir")
        try:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise InvalidInput(field, f"{ref} is over {MOST_BYTES} bytes")
            return data.decode("utf-8").removesuffix("\n")
        except OSError as error:
            raise InvalidInput(field, f"{ref} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidInput(field, f"{ref} is no text in UTF-8") from None
