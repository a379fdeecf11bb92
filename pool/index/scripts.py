"""The index's scripts: which there are, and their text as Redis gets it."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files

from emberpool.pool.index.limits import IndexLimits


class Script(StrEnum):
    """One member per file `scripts/MEMBER.lua`, which says what it does, takes and answers."""

    CLAIM = "claim"
    END_CALL = "end_call"
    RELEASE = "release"
    FIRST_CONTACT_FAILED = "first_contact_failed"
    DETACH = "detach"
    ADOPT = "adopt"
    POD_READY = "pod_ready"
    POD_FAILED = "pod_failed"
    POD_GONE = "pod_gone"
    BEGIN_RECYCLE = "begin_recycle"
    FINISH_RECYCLE = "finish_recycle"
    DRAIN = "drain"
    RESERVE_WARM = "reserve_warm"
    SET_TARGETS = "set_targets"
    EXPIRE = "expire"
    RETIRE_IDLE = "retire_idle"
    QUIET_LEASES = "quiet_leases"
    PODS = "pods"
    POD = "pod"
    LEASE = "lease"
    COUNTS = "counts"
    REBUILD_LOCK = "rebuild_lock"
    REBUILD_PURGE = "rebuild_purge"
    REBUILD_PAGE = "rebuild_page"


UNGATED = frozenset({Script.REBUILD_LOCK, Script.REBUILD_PURGE, Script.REBUILD_PAGE})
"""Scripts that run without a generation, since they make one."""

PRELUDE = "_prelude"
"""The file that is put before every script."""

_SERVING = ("_clock", "_lease")
_SHARED: Mapping[Script, tuple[str, ...]] = {
    **dict.fromkeys((Script.CLAIM, Script.FIRST_CONTACT_FAILED), (*_SERVING, "_ladder")),
    **dict.fromkeys((Script.POD_READY, Script.FINISH_RECYCLE), (*_SERVING, "_places", "_settle")),
    **dict.fromkeys((Script.SET_TARGETS, Script.RESERVE_WARM), (*_SERVING, "_places")),
    **dict.fromkeys((Script.RELEASE, Script.POD_FAILED, Script.POD_GONE, Script.EXPIRE), _SERVING),
    **dict.fromkeys((Script.END_CALL, Script.ADOPT), ("_clock",)),
    **dict.fromkeys((Script.PODS, Script.POD, Script.LEASE, Script.QUIET_LEASES), ("_rows",)),
    **dict.fromkeys((Script.COUNTS, Script.RETIRE_IDLE), ("_places",)),
    **dict.fromkeys((Script.DETACH, Script.BEGIN_RECYCLE, Script.DRAIN, *UNGATED), ()),
}
"""What comes between the prelude and a script, in order: only what nearly every run of it uses."""

_RARE = ("_places", "_ladder", "_line", "_gangs", "_serve")
"""What a run of a script that serves may need too, in order: see `rare` in the prelude."""


def shared_files(script: Script) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files between the prelude and a script: those that are made anew in each run, and those made when needed."""
    shared = _SHARED[script]
    serves = shared[: len(_SERVING)] == _SERVING
    return shared, tuple(name for name in _RARE if name not in shared) if serves else ()


@cache
def _file(name: str) -> str:
    return files("emberpool.pool.index").joinpath("scripts", f"{name}.lua").read_text("utf-8")


def script_text(script: Script, limits: IndexLimits) -> str:
    """The whole text of a script.

    All but the prelude is the body of a function of its own. There Lua 5.1 finds what the prelude defines at once; in
    one chunk each function searches all that were made before it, which took a quarter of every script's time.
    """
    gated = "false" if script in UNGATED else "true"
    head = f"local limits, gated = {limits.as_lua()}, {gated}\n"
    shared, rare = ("".join(map(_file, names)) for names in shared_files(script))
    late = f"made_late(function()\n{rare}end)\n" if rare else ""
    body = f"{shared}{late}{_file(script.value)}"
    return f"{head}{_file(PRELUDE)}local reply = (function()\n{body}end)()\nwrite_records()\nreturn reply\n"
