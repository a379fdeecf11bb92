"""An index that was lost, made anew from the accounts of the pods."""

from emberpool.pool.index.contract import RebuiltPod
from emberpool.pool.index.model.memory import Memory
from emberpool.pool.index.model.ordered import Ordered
from emberpool.pool.index.model.records import Lease, Pod
from emberpool.pool.model.claim import Source
from emberpool.pool.model.state import PodState

_STATES = {"clean": PodState.IDLE, "held": PodState.LEASED, "dirty": PodState.DIRTY}
_LOCK = "rebuild_lock:"


def take_lock(memory: Memory, who: str, ttl_ms: int) -> bool:
    """Become the one rebuilder; False if there is one, or nothing to rebuild."""
    if memory.generation or memory.rebuilder:
        return False
    memory.rebuilder = who
    memory.keep_for(_LOCK, max(1, ttl_ms))
    return True


def keep_lock(memory: Memory, who: str, ttl_ms: int) -> bool:
    """Stay it for this long; False if somebody else is, nobody, or the index is built."""
    if memory.generation or memory.rebuilder not in (who, writing(who)):
        return False
    memory.keep_for(_LOCK, max(1, ttl_ms))
    return True


def writing(who: str) -> str:
    """The rebuilder's name once it has begun to write: then it cannot begin again."""
    return f"{who}/"


def rebuild(memory: Memory, accounts: list[RebuiltPod]) -> None:
    """Drop what is left but answers to late questions, write the pods, and count as built."""
    _purge(memory)
    # If two pods claim one lease, the one that was opened last has it.
    for told in sorted(accounts, key=lambda pod: -pod.epoch):
        _restore(memory, told)
    memory.generation, memory.rebuilder = True, ""
    memory.ends.discard(_LOCK)
    memory.chores += 1


def _purge(memory: Memory) -> None:
    memory.leases = {name: lease for name, lease in memory.leases.items() if f"lease:{name}" in memory.ends}
    memory.pods, memory.gangs, memory.shelves, memory.targets = {}, {}, {}, None
    memory.expiry, memory.quiet, memory.deadlines = Ordered(), Ordered(), Ordered()
    memory.line_time, memory.ranks, memory.caller_times = 0, 0, {}
    memory.expired_at, memory.expiry_paused = None, False
    for entry in list(memory.ends):
        if not entry.startswith(("lease:", "wake:")):
            memory.ends.discard(entry)


def _restore(memory: Memory, told: RebuiltPod) -> None:
    state = _STATES[told.state]
    if state is PodState.IDLE and told.standby:
        state = PodState.STANDBY
    # A lease that was released, or that another pod claims too, is not given back.
    if state is PodState.LEASED and (told.lease == "" or told.lease in memory.leases):
        state = PodState.DIRTY
    pod = Pod(
        state,
        told.image,
        memory.now,
        uid=told.uid,
        boot=told.boot_id,
        endpoint=told.endpoint,
        tag=told.tag,
        epoch=told.epoch,
        uses=0 if told.tag == "" else 1,
        keep_until=memory.now + memory.limits.fresh_keep_ms,
        reason="rebuilt",
    )
    if state is PodState.LEASED:
        pod.lease = told.lease
        _restore_lease(memory, told, pod)
    memory.add_pod(told.name, pod)


def _restore_lease(memory: Memory, told: RebuiltPod, pod: Pod) -> None:
    hold_ms = int(told.hold_s * 1000)
    memory.leases[told.lease] = Lease(
        state="leased",
        pod=told.name,
        epoch=pod.epoch,
        tag=pod.tag,
        image=pod.image,
        hold_ms=hold_ms,
        arrival=memory.now,
        deadline=memory.now,
        detached=True,
        source=Source.REUSE,
        answers=1,
        expires=memory.now + hold_ms,
        touched=memory.now,
    )
    memory.expiry.add(told.lease, memory.now + hold_ms)
