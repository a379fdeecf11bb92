"""Deleting what jobs left behind, whatever its modes."""

import os
import shutil
import stat
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Delete a folder in which nothing runs any more; silent if it is not there.

    An overlay's work folder has mode 0, and jobs chmod what they like: unless we are root, folders are opened up first.

    Raises:
        OSError: something in it cannot be deleted.
    """
    try:
        if os.geteuid() != 0:
            _open_up(folder)
        shutil.rmtree(folder)
    except FileNotFoundError:
        if folder.exists():
            raise


def _open_up(folder: Path) -> None:
    os.chmod(folder, stat.S_IRWXU)
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            # Before the walk goes into it; a link to a folder is listed too, and is none of ours.
            if not os.path.islink(path):
                os.chmod(path, stat.S_IRWXU)
