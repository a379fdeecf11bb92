"""A library that does at import what Temporal's sandbox forbids in workflow code: it reads a file, asks the time."""

import time
from pathlib import Path

TEXT = Path(__file__).resolve().read_bytes()
LOADED = time.time()
