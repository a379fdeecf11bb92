"""What is done for a pool now and then: leases and waits that are over, idle pods too many, requests long quiet."""

from emberpool.pool.index.contract import LeaseRecord
from emberpool.pool.index.model.ladder import Ladder
from emberpool.pool.index.model.memory import Memory
from emberpool.pool.index.model.reads import lease_record
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.state import PodState


class Sweeping:
    """Looks at what is due, a page at a time."""

    def __init__(self, memory: Memory, ladder: Ladder) -> None:
        self._memory, self._ladder = memory, ladder

    def expire(self, limit: int) -> int:
        """See PoolIndex.expire."""
        memory = self._memory
        last, memory.expired_at = memory.expired_at, memory.now
        memory.keep_for("expired_at:", memory.limits.tombstone_ms)
        if last is not None and memory.now - last > memory.limits.outage_ms:
            memory.expiry_paused = True
            memory.keep_for("expiry_paused:", memory.limits.pause_ms)
        count = 0 if memory.expiry_paused else self._expire_due(limit)
        self._ladder.serve_line()
        for _ in range(memory.limits.batch):
            if not self._ladder.make_room(""):
                break
        return count

    def _expire_due(self, limit: int) -> int:
        memory = self._memory
        held = memory.expiry.up_to(memory.now, limit)
        for request_id in held:
            lease = memory.leases[request_id]
            if lease.gathering:
                self._ladder.end_gang(lease.gang, "expired", "deadline")
            elif lease.state == "leased":
                memory.soil(lease.pod, "hold_expired")
                self._ladder.end(request_id, "lost", "hold_expired")
        waited = memory.deadlines.up_to(memory.now, limit - len(held))
        for request_id in waited:
            self._wait_ends(request_id)
        return len(held) + len(waited)

    def _wait_ends(self, request_id: str) -> None:
        lease = self._memory.leases[request_id]
        if lease.gathering:
            self._ladder.end_gang(lease.gang, "expired", "deadline")
        elif lease.state in ("reserved", "waiting"):
            if lease.state == "reserved":
                self._ladder.free_reservation(request_id)
            self._ladder.end(request_id, "expired", "deadline")
            self._memory.wake(request_id)

    def retire_idle(self, limit: int) -> list[PodName]:
        """See PoolIndex.retire_idle."""
        memory = self._memory
        retired = memory.shelf("keep").up_to(memory.now, limit)
        for name in retired:
            memory.change(name, PodState.DRAINING, reason="keep_alive")
        while len(retired) < limit and memory.over_ceiling and (least := self._worth_least()):
            memory.change(least, PodState.DRAINING, reason="over_ceiling")
            retired.append(least)
        return [PodName(name) for name in retired]

    def _worth_least(self) -> str | None:
        shelf = self._memory.shelf
        return shelf("keep").first() or shelf("fresh").first() or shelf("pods", PodState.STANDBY).first()

    def quiet_leases(self, first_ms: int, limit: int) -> list[LeaseRecord]:
        """See PoolIndex.quiet_leases."""
        memory = self._memory
        found: list[LeaseRecord] = []
        for request_id in memory.quiet.up_to(memory.now - first_ms, limit):
            lease = memory.leases[request_id]
            lease.gap = max(first_ms, min(lease.gap * 2, memory.limits.widest_gap_ms))
            memory.quiet.add(request_id, memory.now + lease.gap - first_ms)
            record = lease_record(request_id, lease, memory.now)
            found += [record] if record is not None else []
        return found
