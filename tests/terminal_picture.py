"""Takes docs/images/demo.svg, a picture of a real run in a terminal of 100 columns: `make ui`. Needs tmux.

tmux is the terminal: what is in the picture is what it shows when the run has ended, colours included.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = "emberpool demo"
FILE = Path(__file__).resolve().parents[1] / "docs" / "images" / "demo.svg"
COLUMNS, LINES = 100, 60
LONGEST_S = 1200.0
ENDED = "exit status "


def main(arguments: list[str]) -> int:
    """Run the demo (`arguments` go to it), and draw what the terminal shows."""
    tmux = shutil.which("tmux")
    if tmux is None:
        print("error: no tmux found\nremedy: apt-get install tmux", file=sys.stderr)
        return 1
    command = " ".join([COMMAND, *arguments])
    with tempfile.TemporaryDirectory(prefix="emberpool-terminal-") as folder:
        screen = _run(tmux, f"{Path(sys.executable).parent}/{command}", folder)
    shown, _, status = screen.rpartition(ENDED)
    if status.strip() != "0":
        print(f"error: it ended with {status}: {shown}", file=sys.stderr)
        return 1
    prompt = Text.assemble(("$ ", "dim"), (command, "bold"))
    FILE.write_text(_drawn(prompt, Text.from_ansi(shown.rstrip())))
    print(f"docs/images/{FILE.name}: {command}")
    return 0


def _run(tmux: str, command: str, folder: str) -> str:
    """The screen, with its colours, after the command has ended."""
    server = [tmux, "-L", f"emberpool-{uuid.uuid4().hex[:8]}"]
    inside = f"env PS1= sh -c '{command}; status=$?; echo; echo {ENDED}$status; sleep {LONGEST_S:.0f}'"
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    subprocess.run([*server, "-f", "/dev/null", "new-session", "-d", *size, "-c", folder, inside], check=True)
    try:
        ends = time.monotonic() + LONGEST_S
        while time.monotonic() < ends:
            shown = subprocess.run(
                [*server, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True
            ).stdout
            if ENDED in shown:
                return shown.rstrip()
            time.sleep(0.5)
        raise TimeoutError(f"{command} has not ended after {LONGEST_S:.0f} s")
    finally:
        subprocess.run([*server, "kill-server"], check=True)


def _drawn(prompt: Text, screen: Text) -> str:
    """The SVG, in the reader's own monospace font: nothing in it is fetched."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(prompt)
    console.print(screen)
    svg = console.export_svg(title="emberpool", unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "ui-monospace, monospace").replace("Fira Code", "ui-monospace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
