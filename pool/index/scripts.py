"""The index's scripts: which there are, and their text as Redis gets it."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

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
    REBUILD_KEEP = "rebuild_keep"
    REBUILD_PURGE = "rebuild_purge"
    REBUILD_PAGE = "rebuild_page"


UNGATED = frozenset({Script.REBUILD_LOCK, Script.REBUILD_KEEP, Script.REBUILD_PURGE, Script.REBUILD_PAGE})
"""Scripts that run without a generation, since they make one."""

PRELUDE = "_prelude"
"""The file that what is put before a script begins with."""

SHARED = ("_clock", "_lease", "_places", "_ladder", "_settle", "_rows", "_line", "_gangs", "_serve")
"""What scripts have in common, each file after those that it needs: but what is in `rare` may be needed before."""

_COMMENT_OR_STRING = re.compile(r"--[^\n]*|'[^'\n]*'|\[\[.*?\]\]", re.DOTALL)
_WORD = re.compile(r"(?:\brare\.)?\b[A-Za-z_]\w*")
_NAMED = re.compile(r"^(?:local (?:function )?|function )((?:rare\.)?\w+(?:, \w+)*)", re.MULTILINE)
_LIMIT = re.compile(r"\blimits\.([a-z_]+)")


class Block(NamedTuple):
    """A few lines of a shared file, from one blank line to the next."""

    text: str
    names: frozenset[str]
    """What it defines; nothing: it is always there."""
    words: frozenset[str]
    """What it may use."""
    in_prelude: bool

    @property
    def is_rare(self) -> bool:
        """Whether it is made only when it is first called."""
        return any(name.startswith("rare.") for name in self.names)


@cache
def _file(name: str) -> str:
    return files("emberpool.pool.index").joinpath("scripts", f"{name}.lua").read_text("utf-8")


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT_OR_STRING.sub("", text)))


@cache
def blocks(name: str) -> tuple[Block, ...]:
    """The blocks of a shared file, without those that are comments only."""
    found: list[Block] = []
    for text in _file(name).strip().split("\n\n"):
        words = _words(text)
        if words:
            names = frozenset(name for group in _NAMED.findall(text) for name in group.split(", "))
            found.append(Block(text, names, words, name == PRELUDE))
    return tuple(found)


def _used(those: Sequence[Block], words: frozenset[str]) -> list[Block]:
    """The blocks that define one of these words, or what such a block uses, in their order."""
    chosen: set[Block] = set()
    while more := {block for block in those if block not in chosen and block.names & words}:
        chosen |= more
        words = words.union(*(block.words for block in more))
    return [block for block in those if block in chosen]


def _body(script: Script) -> tuple[list[Block], list[Block]]:
    """What to make in each run of a script, and what to make when it is first called: nothing that it cannot use."""
    every = [block for name in (PRELUDE, *SHARED) for block in blocks(name)]
    always = [block for block in every if not block.names]
    words = _words(_file(script.value)).union({"write_records"}, *(block.words for block in always))
    common = _used([block for block in every if not block.is_rare], words)
    words = words.union(*(block.words for block in common))
    late = _used(
        [block for block in every if block not in common], frozenset(w for w in words if w.startswith("rare."))
    )
    if late:
        common = _used([block for block in every if not block.is_rare], words | {"made_late"})
    return [block for block in every if block in common or block in always], [b for b in late if b not in common]


def _join(those: Iterable[Block]) -> str:
    return "".join(f"{block.text}\n" for block in those)


@cache
def _assembled(script: Script) -> str:
    gated = "false" if script in UNGATED else "true"
    common, rare = _body(script)
    late = f"made_late(function()\n{_join(rare)}end)\n" if rare else ""
    body = f"{_join(block for block in common if not block.in_prelude)}{late}{_file(script.value)}"
    prelude = _join(block for block in common if block.in_prelude)
    return f"local gated = {gated}\n{prelude}local reply = (function()\n{body}end)()\nwrite_records()\nreturn reply\n"


def script_text(script: Script, limits: IndexLimits) -> str:
    """The whole text of a script: it holds only what it uses, since all of it is made anew whenever it runs.

    All but the prelude is the body of a function of its own. There Lua 5.1 finds what the prelude defines at once; in
    one chunk each function searches all that were made before it, which took a quarter of every script's time.
    """
    numbers: dict[str, int] = limits.model_dump()
    return _LIMIT.sub(lambda found: str(numbers[found[1]]), _assembled(script))
