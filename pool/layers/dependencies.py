"""Resolves requirements and makes a layer of them, by uv, on the worker: jobs without a network get a folder.

Wheels only: to build a source distribution is to run its code, here, with the worker's rights.
"""

import asyncio
import hashlib
import os
import re
import shutil
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from emberpool.pool.layers.python import JobPython
from emberpool.pool.layers.requirements import checked_requirements, held_to
from emberpool.pool.layers.store import Make
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable

LOCKS_LAST_S = 600.0
"""For how long requirements that are not pinned come to the same versions on one worker."""
UV_S = 900.0
"""Longest run of uv."""
_TRANSIENT = re.compile(
    r"error sending request|connection (refused|reset|closed)|timed out|HTTP status server error|dns error",
    re.IGNORECASE,
)


class Resolver:
    """One per worker. What was resolved once is not asked again for `LOCKS_LAST_S`."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str, str], tuple[float, asyncio.Task[str]]] = {}

    async def lock(self, requirements: str, python: JobPython) -> str:
        """The exact versions and hashes of everything that is needed, one requirement per line; hashes that the
        requirements give are kept, and what the index has is held to them as it is installed.

        Raises:
            InvalidInput: it cannot be resolved; uv's own words say why.
            PoolUnavailable: the package index cannot be reached.
        """
        wanted = checked_requirements(requirements)
        key, now = (wanted, python.version, python.platform), time.monotonic()
        self._locks = {
            key: (at, task) for key, (at, task) in self._locks.items() if now - at < LOCKS_LAST_S and not _failed(task)
        }
        if key not in self._locks:
            task = asyncio.create_task(_compile(wanted, python))
            task.add_done_callback(_failed)  # its failure is told to whoever is left of those who asked
            self._locks[key] = now, task
        return await asyncio.shield(self._locks[key][1])


def _failed(task: "asyncio.Task[str]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def site_name(lock: str, python: JobPython) -> str:
    """The layer's name on the worker: over the resolved lock and the pod's Python and platform."""
    about = "\n".join((lock, python.version, python.platform))
    return f"site-{hashlib.sha256(about.encode()).hexdigest()}"


def site_maker(lock: str, python: JobPython) -> Make:
    """What installs a lock into a folder and packs it.

    Raises:
        InvalidInput, PoolUnavailable: (when it is called) as `Resolver.lock`; or no file has a hash of the lock.
    """

    async def make(into: Path) -> None:
        work = into.with_name(f"{into.name}.d")
        try:
            await asyncio.to_thread(work.mkdir)
            listed, site = work / "lock.txt", work / "site"
            listed.write_text(lock)
            site.mkdir()
            # The lock was made with the whole patch version, which --python-version of an installation takes too.
            await _uv(
                ["pip", "install", "--no-deps", "--require-hashes", "--target", str(site), "--link-mode", "copy"],
                ["--requirements", str(listed)],
                python,
            )
            await asyncio.to_thread(_pack, site, into)
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, work, True))

    return make


async def _compile(requirements: str, python: JobPython) -> str:
    arguments = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "-"]
    return held_to(await _uv(["pip", "compile"], arguments, python, requirements.encode()), requirements)


async def _uv(command: Sequence[str], arguments: Sequence[str], python: JobPython, stdin: bytes = b"") -> str:
    about = ["--python-version", python.version, "--python-platform", python.platform, "--only-binary", ":all:"]
    # Its index, certificates and cache are set up as uv's own documentation has it; ours are none of its business.
    env = {name: value for name, value in os.environ.items() if not name.startswith("EMBERPOOL_")}
    env |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_CONFIG": "1"}
    process = await asyncio.create_subprocess_exec(
        find_uv(),
        *command,
        *about,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd="/",
    )
    try:
        async with asyncio.timeout(UV_S):
            out, errors = await process.communicate(stdin)
    except TimeoutError:
        raise PoolUnavailable(f"uv did not end within {UV_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return out.decode()
    told = _told(errors)
    if _TRANSIENT.search(told):
        raise PoolUnavailable(f"requirements: uv: {told}")
    raise InvalidInput("requirements", f"uv: {told}")


def find_uv() -> str:
    """Path of the uv program: the PyPI package's, or the one on PATH.

    Raises:
        InvalidInput: there is none.
    """
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise InvalidInput("requirements", "this worker has no uv: install emberpool[dependencies] there")
    return found


def _told(errors: bytes) -> str:
    """uv's message as one line, without the secrets that a URL may hold."""
    text = re.sub(r"//[^/@\s]*@", "//", errors.decode("utf-8", "replace"))
    return " ".join(re.sub(r"[×╰─▶│├]", " ", text).split())[:1500]


def _pack(site: Path, into: Path) -> None:
    """A tar of the folder that is the same on every worker: sorted, without times and owners."""
    for path in (site / "bin").glob("*"):
        _any_python(path)
    with tarfile.open(into, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(site.rglob("*")):
            if path == site / ".lock":
                continue
            info = tar.gettarinfo(path, str(path.relative_to(site)))
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            if info.isreg():
                with path.open("rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)


def _any_python(script: Path) -> None:
    """Have a script run by the `python3` of the sandbox: uv wrote down one of the worker."""
    text = script.read_bytes() if script.is_file() and not script.is_symlink() else b""
    first, _, rest = text.partition(b"\n")
    if first.startswith(b"#!/bin/sh") and rest.startswith(b"'''exec'"):
        rest = rest.split(b"\n", 2)[2]
    elif not (first.startswith(b"#!") and b"python" in first):
        return
    script.write_bytes(b"#!/usr/bin/env python3\n" + rest)
