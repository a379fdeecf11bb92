"""`python -m emberpool.worker.cli`, for when the script is not on PATH."""

from emberpool.worker.cli import main

main()
