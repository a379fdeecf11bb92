"""emberd's own account of who may use the pod: it judges every call, whatever the index believes."""

import json
import os
import threading
import time
from typing import Any, Dict, NamedTuple

from emberpool.pool.emberd.refusal import Refused
from emberpool.pool.emberd.signing import Claim


class View(NamedTuple):
    """The account at one moment."""

    state: str
    """clean, held or dirty."""
    tag: str
    epoch: int
    lease: str
    hold_s: float
    idle_s: float
    uses: int


class Ledger:
    """(state, tag, epoch, lease, hold), changed under one lock and written to disk before anything depends on it."""

    def __init__(self, state_dir: str) -> None:
        """A start that finds an account was used before: it is dirty, with that tag and epoch."""
        self.lock = threading.RLock()
        """Held by callers too, where a check and what follows from it must not come apart."""
        self._path = os.path.join(state_dir, "state.json")
        self._state, self._tag, self._epoch, self._lease, self._hold_s = "clean", "", 0, "", 0.0
        self._in_flight, self._uses = 0, 0
        self._quiet_since = time.monotonic()
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        self._found = os.path.exists(self._path)
        if self._found:
            self._state = "dirty"
            self._tag, self._epoch = _read(self._path)

    @property
    def is_anew(self) -> bool:
        """Whether emberd was started again since the last lease: none of its jobs has run in this life."""
        with self.lock:
            return self._found and self._uses == 0

    def view(self) -> View:
        """What `GET /v1/state` tells."""
        with self.lock:
            idle = 0.0 if self._in_flight else time.monotonic() - self._quiet_since
            return View(self._state, self._tag, self._epoch, self._lease, self._hold_s, idle, self._uses)

    def begin(self, claim: Claim) -> bool:
        """Admit a call, opening the pod if it is the claim's first; True if it did. `end` must follow.

        Raises:
            Refused: 409 with the word that docs/emberd-protocol.md gives.
        """
        with self.lock:
            opened = self._opens(claim)
            if opened:
                self._write(claim.tag, claim.epoch)
                self._state, self._tag, self._epoch, self._lease = "held", claim.tag, claim.epoch, claim.lease
                self._uses += 1
                self._in_flight = 0
            self._hold_s = claim.hold_s or self._hold_s
            self._in_flight += 1
            return opened

    def end(self, claim: Claim) -> None:
        """A call that `begin` admitted is over."""
        with self.lock:
            if self._is_holder(claim):
                self._in_flight -= 1
                self._quiet_since = time.monotonic()

    def demand_holder(self, claim: Claim) -> None:
        """Refuse if the lease has ended since the call began."""
        with self.lock:
            if not self._is_holder(claim):
                raise Refused(409, "stale_epoch", f"the lease is over: epoch is {self._epoch}, state {self._state}")

    def fence(self, epoch: int) -> None:
        """End whatever lease there is: dirty at `epoch`, which must be at least our own."""
        with self.lock:
            if epoch < self._epoch:
                raise Refused(409, "stale_epoch", f"epoch is {self._epoch}")
            self._write(self._tag, epoch)
            self._become_dirty(epoch)

    def lose(self) -> None:
        """The room is gone by itself: nobody may go on in it."""
        with self.lock:
            if self._state == "held":
                self._become_dirty(self._epoch)

    def become_clean(self, epoch: int) -> None:
        """A reset was attested."""
        with self.lock:
            if self._state != "dirty" or self._epoch != epoch:
                raise Refused(409, "not_fenced", f"state is {self._state} at epoch {self._epoch}")
            self._state = "clean"  # the account stays: whoever used the pod last must be known after a restart too

    def demand_clean(self, epoch: int) -> bool:
        """Whether something may be done at `epoch` to the pod while nobody has it; False if it was done already.

        Raises:
            Refused: it is not clean, or the epoch is lower than its own.
        """
        with self.lock:
            if epoch < self._epoch:
                raise Refused(409, "stale_epoch", f"epoch is {self._epoch}")
            if self._state != "clean":
                raise Refused(409, "not_clean", f"state is {self._state} at epoch {self._epoch}")
            return epoch > self._epoch

    def stay_clean(self, epoch: int) -> None:
        """It was done: what comes late with the same or a lower epoch finds that."""
        with self.lock:
            self._epoch = epoch

    def _become_dirty(self, epoch: int) -> None:
        self._state, self._epoch, self._lease, self._hold_s = "dirty", epoch, "", 0.0
        self._in_flight = 0
        self._quiet_since = time.monotonic()

    def _is_holder(self, claim: Claim) -> bool:
        return self._state == "held" and claim.epoch == self._epoch and claim.lease == self._lease

    def _opens(self, claim: Claim) -> bool:
        """Whether this call opens the pod; False if its lease is open already."""
        if claim.epoch < self._epoch or (claim.epoch == self._epoch and self._state != "held"):
            raise Refused(409, "stale_epoch", f"epoch is {self._epoch}")
        if claim.epoch == self._epoch:
            if claim.lease != self._lease:
                raise Refused(409, "other_lease", "this epoch belongs to another lease")
            if claim.tag != self._tag:
                raise Refused(409, "other_tag", "this lease has another tag")
            return False
        if self._state != "clean":
            raise Refused(409, "not_clean", f"state is {self._state} at epoch {self._epoch}")
        if self._tag not in ("", claim.tag):
            raise Refused(409, "other_tag", "the pod was used under another tag")
        return True

    def _write(self, tag: str, epoch: int) -> None:
        temporary = self._path + ".new"
        with open(temporary, "w") as file:
            json.dump({"tag": tag, "epoch": epoch}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)


def _read(path: str) -> "tuple[str, int]":
    try:
        with open(path) as file:
            data: Dict[str, Any] = json.load(file)
        return str(data["tag"]), int(data["epoch"])
    except (ValueError, KeyError, TypeError):
        # Torn: whoever it was is unknown, so nobody may open it again; a fence still works.
        return "unknown", 0
