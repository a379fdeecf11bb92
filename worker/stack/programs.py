"""Where the servers' programs are: on PATH, or beside this interpreter, where PyPI's packages put them."""

import os
import shutil
import sysconfig
from pathlib import Path


def find_program(name: str) -> Path | None:
    """The program on PATH, else in the scripts folder of this Python (whose virtual environment need not be active)."""
    found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts") or os.defpath)
    return Path(found) if found else None
