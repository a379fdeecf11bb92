"""The index's scripts: which there are, and their text as Redis gets it."""

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

SHARED = ("_prelude", "_line", "_serve", "_rows")
"""Files put before every script, in this order."""


@cache
def _file(name: str) -> str:
    return files("emberpool.pool.index").joinpath("scripts", f"{name}.lua").read_text("utf-8")


def script_text(script: Script, limits: IndexLimits) -> str:
    """The whole text of a script."""
    gated = "false" if script in UNGATED else "true"
    head = f"local limits, gated = {limits.as_lua()}, {gated}\n"
    return head + "".join(_file(name) for name in SHARED) + _file(script)
