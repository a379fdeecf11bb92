"""The site's check finds what a reader would stumble over, and what a browser would fetch from elsewhere."""

import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / ".ci" / "site_is_whole.py"
WHOLE = '<html><body id="top"><a href="#top">up</a><a href="https://temporal.io/">elsewhere</a></body></html>'


def check(site: Path) -> tuple[int, str]:
    """Exit status and output of the check."""
    done = subprocess.run([sys.executable, str(CHECK), str(site)], capture_output=True, text=True, timeout=60.0)
    return done.returncode, done.stdout


def test_a_site_that_is_whole_passes(tmp_path: Path) -> None:
    """Links that a person follows may lead anywhere."""
    (tmp_path / "index.html").write_text(WHOLE)
    assert check(tmp_path) == (0, "1 pages, whole and on their own\n")


def test_what_is_broken_or_fetched_is_named(tmp_path: Path) -> None:
    """A missing page, a missing anchor, a script and a font from elsewhere: a line each, exit status 1."""
    (tmp_path / "index.html").write_text(
        '<a href="gone.html">a</a><a href="other.html#nowhere">b</a><script src="https://cdn.example/m.js"></script>'
        '<pre class="mermaid">a --> b</pre>'
    )
    (tmp_path / "other.html").write_text(WHOLE)
    (tmp_path / "style.css").write_text("@font-face { src: url('https://fonts.example/f.woff2') }")
    status, said = check(tmp_path)
    assert (status, said.splitlines()) == (
        1,
        [
            "index.html: gone.html leads nowhere",
            "index.html: other.html#nowhere: there is no such anchor",
            "index.html: loads https://cdn.example/m.js",
            "index.html: loads a library for .mermaid",
            "style.css: loads https://fonts.example/f.woff2",
        ],
    )
