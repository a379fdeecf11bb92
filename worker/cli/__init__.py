"""The command line, `emberpool`."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run one command and leave with its exit code: 0 ok, 1 it failed, 2 wrong usage, 130 Ctrl-C."""
    from emberpool.worker.cli.app import run

    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # The reader of a pipe is gone, and with it whoever could be told.
            code = code or 1
    # A process that used Temporal's client may crash as the interpreter ends, which would turn 0 into a signal:
    # temporalio/sdk-python#300. Nothing that matters is left to run here.
    os._exit(code)
