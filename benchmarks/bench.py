"""Runs the measurements on an embedded stack of this machine, and prints what came of them.

python benchmarks/bench.py [warm_call] [index] [index_scale] [index_load] [recycle] [exec]
    [--quick] [--check] [--json FILE]
"""

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

import exec_time  # noqa: E402
import index_load  # noqa: E402
import index_rates  # noqa: E402
import index_scale  # noqa: E402
import recycle_time  # noqa: E402
import warm_call  # noqa: E402
from figures import Measured  # noqa: E402
from rich.table import Table  # noqa: E402

from emberpool.pool.model.profile import Profile  # noqa: E402
from emberpool.worker.cli.output import console  # noqa: E402
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions  # noqa: E402

NAMES = (warm_call.NAME, index_rates.NAME, index_scale.NAME, index_load.NAME, recycle_time.NAME, exec_time.NAME)
PROFILE = Profile(name="bench", min_warm=1, max_pods=2)


async def measure(name: str, folder: Path, quick: bool) -> Measured:
    """One measurement on a stack of its own, so that none finds what another left. Each brings the worker it needs."""
    async with EmbeddedStack(StackOptions(data_dir=folder, profiles=(PROFILE,), workers=0)) as stack:
        if name == warm_call.NAME:
            return await warm_call.measure(stack, PROFILE.name, 50 if quick else 300)
        if name == index_rates.NAME:
            return await index_rates.measure(stack.settings.redis_url, 1600 if quick else 6000)
        if name == index_scale.NAME:
            return await index_scale.measure(stack.settings.redis_url, 300 if quick else 1500)
        if name == index_load.NAME:
            return await index_load.measure(stack.settings.redis_url, 1 if quick else 5)
        if name == exec_time.NAME:
            return await exec_time.measure(stack.settings, 50 if quick else 300, 10 if quick else 100)
        return await recycle_time.measure(stack.settings, 3 if quick else 15)


def show(measured: Measured) -> None:
    """A table and its setting."""
    out = console()
    table = Table(title=measured.title, title_justify="left")
    for column in measured.header:
        table.add_column(column)
    for row in measured.rows:
        table.add_row(*row)
    out.print(table)
    for line, _ in measured.judged():
        out.print(line, highlight=False)
    out.print(f"{measured.setting}\n")


def as_json(measured: Measured) -> dict[str, Any]:
    """The figures, with what is asked of them and whether it holds."""
    asked = [
        {**dataclasses.asdict(bound), "line": line, "holds": holds}
        for bound, (line, holds) in zip(measured.bounds, measured.judged(), strict=True)
    ]
    return {**dataclasses.asdict(measured), "bounds": asked}


def machine() -> dict[str, str | int]:
    """What it ran on: ratios travel between machines, times do not."""
    return {"cores": os.cpu_count() or 1, "kernel": platform.release(), "python": platform.python_version()}


async def run(names: Sequence[str], quick: bool) -> list[Measured]:
    """Measure each and print it."""
    all_measured: list[Measured] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="emberpool-bench-") as folder:
            all_measured.append(await measure(name, Path(folder), quick))
        show(all_measured[-1])
    return all_measured


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Measure emberpool on this machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it works, not to quote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure is not as asked")
    given = parser.parse_args()
    unknown = set(given.names) - set(NAMES)
    if unknown:
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    all_measured = asyncio.run(run(given.names or NAMES, given.quick))
    if given.json is not None:
        data = {"machine": machine(), "measured": [as_json(measured) for measured in all_measured]}
        given.json.write_text(json.dumps(data, indent=2) + "\n")
    missed = [line for measured in all_measured for line, holds in measured.judged() if not holds]
    if given.check and missed:
        print(f"{len(missed)} missed:", *missed, sep="\n  ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
