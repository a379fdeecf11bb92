"""Copies a layer to where the job may change it; done by a process that lives in the room, with a job's rights."""

import os
import shutil
import socket
from typing import Any, Dict

from emberpool.pool.emberd import channel
from emberpool.pool.emberd.config import Limits


def place(sock: socket.socket, message: Dict[str, Any], _: Limits) -> None:
    """Raises OSError with the first thing that could not be written."""
    path = os.fsdecode(os.path.realpath(channel.encoded(message["path"])))
    try:
        shutil.copytree(message["source"], path, symlinks=True, dirs_exist_ok=True)
    except shutil.Error as error:
        _, target, why = error.args[0][0]
        raise OSError(f"{target}: {why}") from error
    channel.send(sock, {})
