"""Network namespaces: what one thread does in another one than its process's.

A namespace belongs to a thread, so a thread of its own enters it and ends there; nothing has to find its way back.
"""

import os
import threading
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, List, Optional, TypeVar

from emberpool.pool.emberd import kernel

T = TypeVar("T")


@contextmanager
def of_process(pid: int) -> Generator[int, None, None]:
    """The network namespace of a process, as an open file. Raises OSError if there is no such process."""
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def run_in(namespace: int, do: Callable[[], T]) -> T:
    """Do something in that network namespace: sockets that it makes belong there.

    Raises:
        OSError: it cannot be entered.
    """

    def within() -> T:
        kernel.enter_namespace(namespace, kernel.CLONE_NEWNET)
        return do()

    return _in_a_thread(within)


def run_in_new(do: Callable[[], T]) -> T:
    """Do something in a new network namespace, which lasts for as long as a socket or device of it does.

    Raises:
        OSError: it cannot be made.
    """

    def within() -> T:
        kernel.unshare(kernel.CLONE_NEWNET)
        return do()

    return _in_a_thread(within)


def _in_a_thread(do: Callable[[], T]) -> T:
    done: List[T] = []
    failed: Dict[str, Optional[BaseException]] = {"error": None}

    def body(*_: Any) -> None:
        try:
            done.append(do())
        except BaseException as error:  # raised again where it is waited for
            failed["error"] = error

    thread = threading.Thread(target=body, name="network", daemon=True)
    thread.start()
    thread.join()
    if failed["error"] is not None:
        raise failed["error"]
    return done[0]
