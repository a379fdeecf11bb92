"""The ends of a batch: tasks in from a file, results out to a folder, both by fsspec URL."""

import asyncio
import itertools
import json
import posixpath
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TextIO, cast

import fsspec
from pydantic import ValidationError
from temporalio import activity

from emberpool.activities import names
from emberpool.activities.blobs import Blobs
from emberpool.activities.errors import translated
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import LoadTasksInput, LoadTasksOutput, Nothing, RecordResultInput
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.pool.model.rollout import RolloutTask

_FSSPEC = cast(Any, fsspec)
"""fsspec has no types."""


MAX_TASK_BYTES = 1024 * 1024
"""Of one task's line, and of all tasks of one answer, which is one payload."""


class Batching:
    """Activities of RolloutBatch and Rollout; they need no pool."""

    def __init__(self, heartbeat_s: float, blobs: Blobs, searchable: Callable[[], bool] = lambda: False) -> None:
        """`searchable` says whether this worker's workflows set search attributes; known once it runs."""
        self._heartbeat_s, self._blobs = heartbeat_s, blobs
        self._searchable = searchable

    @activity.defn(name=names.LOAD_TASKS)
    async def load_tasks(self, call: LoadTasksInput) -> LoadTasksOutput:
        """Read a page of tasks from JSON lines. A wrong line fails once, naming the line and the field; so does a place
        for results that cannot be written."""
        searchable = self._searchable()
        if call.results_url:
            with translated():
                place = self._blobs.place("results_url", call.results_url)
                async with heartbeating(self._heartbeat_s, lambda: None):
                    await asyncio.to_thread(_try_out, call.results_url, place.url)
        if not call.url:
            return LoadTasksOutput(searchable=searchable)
        with translated():
            place = self._blobs.place("tasks_url", call.url)
            async with heartbeating(self._heartbeat_s, lambda: None):
                loaded = await asyncio.to_thread(_load, call, place.url)
        return loaded.model_copy(update={"searchable": searchable})

    @activity.defn(name=names.RECORD_RESULT)
    async def record_result(self, call: RecordResultInput) -> Nothing:
        """Write one result as ROLLOUT_ID.json, whole or not at all; writing it again changes nothing."""
        with translated():
            place = self._blobs.place("results_url", call.url)
            async with heartbeating(self._heartbeat_s, lambda: None):
                await asyncio.to_thread(_record, call, place.url)
            return Nothing()


def _load(call: LoadTasksInput, url: str) -> LoadTasksOutput:
    _require_protocol("tasks_url", call.url)
    try:
        with _FSSPEC.open(url, "rt", encoding="utf-8") as opened:
            lines = cast(TextIO, opened)
            numbered = enumerate((line for line in lines if line.strip()), start=1)
            page = _page(itertools.islice(numbered, call.offset, None), call.limit)
            tasks = tuple(_task(call.url, number, line) for number, line in page.lines)
            total = call.offset + page.taken + _count(numbered) if call.count else 0
    except OSError as error:
        raise InvalidInput("tasks_url", f"{call.url} cannot be read: {error}") from error
    return LoadTasksOutput(tasks=tasks, total=total)


class _Page(NamedTuple):
    lines: list[tuple[int, str]]
    taken: int
    """Lines read; one more than there are if the last did not fit."""


def _page(numbered: Iterator[tuple[int, str]], limit: int) -> _Page:
    """As many lines as one payload takes: the caller asks on behind them. One that fits in none is an error."""
    lines: list[tuple[int, str]] = []
    size = 0
    for number, line in itertools.islice(numbered, limit):
        size += len(line.encode())
        if len(line.encode()) > MAX_TASK_BYTES:
            raise InvalidInput(
                f"tasks_url line {number}", f"is over {MAX_TASK_BYTES} bytes: keep large files elsewhere"
            )
        if size > MAX_TASK_BYTES:
            return _Page(lines, len(lines) + 1)
        lines.append((number, line))
    return _Page(lines, len(lines))


def _count(rest: Iterator[Any]) -> int:
    return sum(1 for _ in rest)


def _task(url: str, number: int, line: str) -> RolloutTask:
    try:
        return RolloutTask.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "line"
        raise InvalidInput(f"tasks_url line {number}, {field}", first["msg"]) from error


def _try_out(given: str, url: str) -> None:
    """Write an empty file under the URL, and remove it."""
    _require_protocol("results_url", given)
    filesystem, folder = cast(tuple[Any, str], _FSSPEC.url_to_fs(url))
    name = posixpath.join(folder, f".emberpool-{uuid.uuid4().hex}.part")
    try:
        filesystem.makedirs(folder, exist_ok=True)
        filesystem.pipe_file(name, b"")
    except (ConnectionError, TimeoutError) as error:
        raise PoolUnavailable(f"results_url {given} cannot be reached: {error}") from error
    except (OSError, NotImplementedError) as error:
        raise InvalidInput("results_url", f"{given} cannot be written: {error}") from error
    with suppress(OSError):  # who may write may not remove, in some object stores
        filesystem.rm_file(name)


def _record(call: RecordResultInput, url: str) -> None:
    """Object stores write whole objects; a local file is written beside and renamed, so that no reader sees half."""
    _require_protocol("results_url", call.url)
    filesystem, folder = cast(tuple[Any, str], _FSSPEC.url_to_fs(url))
    name = posixpath.join(folder, f"{call.result.rollout_id}.json")
    text = json.dumps(call.result.model_dump(mode="json"), separators=(",", ":"))
    try:
        filesystem.makedirs(folder, exist_ok=True)
        if "file" in _protocols(filesystem):
            beside = f"{name}.part"
            filesystem.pipe_file(beside, text.encode())
            filesystem.mv(beside, name)
        else:
            filesystem.pipe_file(name, text.encode())
    except OSError as error:
        raise PoolUnavailable(f"results_url {call.url} cannot be written: {error}") from error


def _require_protocol(field: str, url: str) -> None:
    """fsspec brings local files and HTTP; other kinds of URL need a package each, which no retry installs.

    Raises:
        InvalidInput: this worker has none for the URL.
    """
    protocol = url.partition("://")[0] if "://" in url else "file"
    try:
        _FSSPEC.get_filesystem_class(protocol)
    except ImportError as error:
        raise InvalidInput(field, f"{url}: {error}, beside each of emberpool's workers") from error
    except ValueError as error:
        raise InvalidInput(field, f"{url}: {error}") from error


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol: str | tuple[str, ...] = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
