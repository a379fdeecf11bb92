"""How a file call that is done in a room says no, and what it refuses to open."""

import os
import stat


class FileRefused(Exception):
    """`word` is one of docs/emberd-protocol.md."""

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(detail)
        self.word, self.detail = word, detail


def demand_regular(found: os.stat_result) -> None:
    """Raises FileRefused for whatever is no regular file: it could block, or have no size."""
    if not stat.S_ISREG(found.st_mode):
        raise FileRefused("not_a_file", f"is {kind_of(found.st_mode)}")


def kind_of(mode: int) -> str:
    """What a file is, for people."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a device")
