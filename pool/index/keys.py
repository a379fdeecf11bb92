"""The index's keys: their names, what they hold and how long they live.

All keys of a pool start with `emberpool:{DEPLOYMENT/POOL}:`, one hash tag, so that one script may touch them all on a
cluster, and two deployments on one Redis never meet. Scripts make the names (scripts/_prelude.lua); this is the list.

| key | holds | lives |
| --- | --- | --- |
| generation | who built the index, in which history of writes; without it every script answers Rebuilding | for ever |
| rebuild_lock | the one rebuilder | its TTL |
| targets | version, ceiling, min_warm | for ever |
| names | every pod | for ever |
| pod:NAME | a pod's record, without the fields that were never anything but "" or 0 | until it is gone |
| pods:STATE | pods in a state, by since when | for ever |
| fresh, fresh:IMAGE | idle pods never used, by since when | for ever |
| exact:TAG:FINGERPRINT:IMAGE, same:TAG:IMAGE, tag:TAG | idle used pods, by since when | while not empty |
| keep | idle used pods, by keep-alive deadline | for ever |
| open:IMAGE, standby:IMAGE | starting and standby pods that nobody reserved | while not empty |
| soon:TAG:IMAGE | dirty and recycling pods that nobody reserved | while not empty |
| lease:ID | a request's record, in the same way; also without a weight of 1 | until it ends, then an hour |
| expiry | leases, by when they expire | for ever |
| quiet | leases and waits, by when they were last touched or asked about | for ever |
| deadlines | waits, by deadline | for ever |
| arrivals | requests in line, by when they came | for ever |
| line | callers in line, by virtual time: what their grants have cost them | for ever |
| line:of:CALLER, line:tag:TAG, line:image:IMAGE | requests in line, by rank | while not empty |
| line:time, line:ranks | the line's virtual time; a counter | for ever |
| caller:CALLER | virtual time of a caller that left the line | ten minutes |
| gang:GANG | a gang's members, its size, when it began to gather | until it is whole or over, then an hour |
| gangs | gangs that gather, by when they began | for ever |
| line:gang:GANG | a gang's requests in line, by rank | while not empty |
| wake:WAKER | requests of one worker to look at again | a minute |
| chores | an entry for each time that a pod needs tending or targets changed, the last hundred or two | for ever |
| expired_at, expiry_paused | when `expire` last ran; the pause after an outage | an hour; a minute |
"""

import re

from emberpool.pool.model.errors import InvalidInput

NAME = re.compile(r"[A-Za-z0-9._/-]{1,100}")
"""What a deployment or pool may be called: nothing that means something in a hash tag or a pattern."""

PERMANENT = frozenset(
    "generation targets names pod pods fresh exact same tag keep open standby soon lease expiry quiet deadlines "
    "arrivals line gang gangs chores".split()
)
"""First words of keys that may live without a TTL: state, not leftovers."""


def key_base(deployment: str, pool: str) -> str:
    """What every key of a pool starts with.

    Raises:
        InvalidInput: a name holds more than letters, digits, dots, dashes, slashes and underscores.
    """
    _check("deployment", deployment)
    _check("pool", pool)
    return f"emberpool:{{{deployment}/{pool}}}:"


def profiles_key(deployment: str) -> str:
    """The hash of a deployment's profiles, which lives for ever and belongs to no pool.

    Raises:
        InvalidInput: as `key_base`.
    """
    _check("deployment", deployment)
    return f"emberpool:{{{deployment}}}:profiles"


def _check(field: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r}: use 1-100 letters, digits, '.', '_', '-' or '/'")


def is_permanent(base: str, key: str) -> bool:
    """Whether a key of the pool may live without a TTL."""
    return key.startswith(base) and key.removeprefix(base).split(":", 1)[0] in PERMANENT
