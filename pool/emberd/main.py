"""Starts emberd from a folder of plain files, on any Python from 3.8 on, with nothing installed.

The modules import each other by their full names (`emberpool.pool.emberd...`), so that type checkers and tests see
one identity. Inside a pod there is no such package: this file makes one of the folder that it lies in, and of
nothing else, so no other code can be picked up by accident.
"""

import importlib.machinery
import importlib.util
import os
import sys


def make_package(folder: str) -> None:
    """Let `emberpool.pool.emberd` mean `folder` in this process."""
    for name, where in (("emberpool", None), ("emberpool.pool", None), ("emberpool.pool.emberd", folder)):
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [where] if where else []
        sys.modules[name] = importlib.util.module_from_spec(spec)


if __name__ == "__main__":
    make_package(os.path.dirname(os.path.abspath(__file__)))
    from emberpool.pool.emberd.zygote import fork_off

    # Before the key is read, a thread is started or the server's modules are imported: see zygote.py.
    zygote_socket, zygote_pid = fork_off()

    from emberpool.pool.emberd.daemon import main

    sys.exit(main(zygote_socket, zygote_pid))
