"""emberd's files as pods see them: a compiled copy, made once per supervisor.

A copy, so that an upgrade of the installation changes nothing under pods that run, and that every pod's user can read;
compiled, since a pod cannot write, and would compile it anew at every start.
"""

import compileall
import importlib.resources
import py_compile
import shutil
from pathlib import Path

from emberpool.pool.providers.local.etc_folder import let_all_read
from emberpool.pool.providers.local.root_view import EMBERD_DIR


def copy_emberd(target: Path) -> Path:
    """Make `target` anew and return it.

    Raises:
        OSError: it cannot be written.
    """
    shutil.rmtree(target, ignore_errors=True)
    with importlib.resources.as_file(importlib.resources.files("emberpool.pool") / "emberd") as source:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    # Not checked against the sources at every import: nothing ever changes them.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(target, quiet=2, ddir=EMBERD_DIR, invalidation_mode=mode)
    let_all_read(target)
    return target
