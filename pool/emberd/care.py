"""Who looks after an execution: one thread at a time, and none while none can be had."""

import threading
from typing import Callable


class Care:
    """Of one execution. Safe from any thread: of all who would take it, one does."""

    def __init__(self, look_after: Callable[[], None], free: bool) -> None:
        """`look_after`: what a thread of its own does, to the end. `free`: the first who waits is to take it."""
        self._look_after, self._free, self._refused = look_after, free, False
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether the caller looks after it from now on: nobody else did."""
        with self._lock:
            taken, self._free = self._free, False
            return taken

    @property
    def lacks_thread(self) -> bool:
        """Whether nobody has it since no thread could be started."""
        return self._free and self._refused

    def take_back(self) -> bool:
        """The same as `take`, but only if it lacks a thread."""
        with self._lock:
            taken = self.lacks_thread
            self._free = self._free and not taken
            return taken

    def hand_over(self) -> None:
        """Give it, from whoever has it, to a thread of its own; without one, to the next who takes it.

        A job that forks without bound can use up all threads that there are, where no limit of its own holds it.
        """
        try:
            threading.Thread(target=self._look_after, name="execution", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._free = self._refused = True
