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

_SERVING = ("_lease", "_line", "_serve")
_FEWER: Mapping[Script, tuple[str, ...]] = {
    Script.END_CALL: ("_lease",),
    Script.ADOPT: ("_lease",),
    Script.PODS: ("_rows",),
    Script.POD: ("_rows",),
    Script.LEASE: ("_rows",),
    Script.QUIET_LEASES: ("_rows",),
    **dict.fromkeys((Script.DETACH, Script.BEGIN_RECYCLE, Script.DRAIN, Script.COUNTS, *UNGATED), ()),
}


def shared_files(script: Script) -> tuple[str, ...]:
    """Files between the prelude and a script, in order: only what it uses, since each is made anew whenever it runs."""
    return _FEWER.get(script, _SERVING)


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
    body = "".join(_file(name) for name in (*shared_files(script), script.value))
    return f"{head}{_file(PRELUDE)}return (function()\n{body}end)()\n"
