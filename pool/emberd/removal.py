"""Deletes what a job left, whatever it looks like: closed, nested beyond any path's length, or in great numbers."""

import os
import secrets
from typing import Callable, List


def remove_tree(top: str) -> None:
    """Delete `top` and all below it; what cannot be deleted stays.

    Every folder is first moved up to `top`, so that no path grows and nothing recurses: a job nests folders deeper than
    a path or a stack can follow.
    """
    prefix, number = secrets.token_hex(8), 0
    waiting: List[str] = [top]
    while waiting:
        folder = waiting.pop()
        for entry in _entries(folder):
            if not entry.is_dir(follow_symlinks=False):
                _quietly(os.unlink, entry.path)
                continue
            place = entry.path
            if folder != top:
                number += 1
                place = os.path.join(top, f"{prefix}-{number}")
                if not _moved(entry.path, place):
                    continue
            waiting.append(place)
        if folder != top:
            _quietly(os.rmdir, folder)
    _quietly(os.rmdir, top)


def _entries(folder: str) -> "List[os.DirEntry[str]]":
    try:
        os.chmod(folder, 0o700)  # a job may have closed it to its own user
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _moved(source: str, target: str) -> bool:
    try:
        os.chmod(source, 0o700)  # a folder whose parent changes must be writable itself
        os.rename(source, target)
    except OSError:
        return False
    return True


def _quietly(call: Callable[[str], None], path: str) -> None:
    try:
        call(path)
    except OSError:
        pass
