"""Check the built site as a browser meets it: each link and anchor leads somewhere, nothing is fetched elsewhere.

The builder checks the links of the Markdown; this checks what came out, the theme's own files included.

Usage: python .ci/site_is_whole.py FOLDER
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("link", "href"), ("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src")}
"""What a browser loads by itself; a link that a person follows may lead anywhere."""
FETCHING_RELS = {"stylesheet", "preload", "modulepreload", "icon", "preconnect", "dns-prefetch"}
FETCHED_FOR = {"mermaid", "glightbox", "pyodide"}
"""Classes of elements for which the theme's script fetches a library from a public server."""
IN_STYLES = re.compile(r"url\(\s*[\"']?((?:https?:)?//[^)\"']+)|@import\s+[\"']?((?:https?:)?//[^\"';]+)")


class Page(HTMLParser):
    """The anchors of a page, where it leads, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "__top"}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one element means."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += [f"a library for .{name}" for name in FETCHED_FOR & set(given.get("class", "").split())]
        for name, value in given.items():
            loads = tag != "link" or FETCHING_RELS & set(given.get("rel", "").split())
            if (tag, name) in FETCHED and loads:
                self.loads.append(value)


def problems(site: Path) -> Iterator[str]:
    """A line for each broken link, and for each thing that would be fetched from elsewhere."""
    pages = {file: Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links are made for the root of a server
        name = file.relative_to(site)
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if link.startswith("a library for "):
                yield f"{name}: loads {link}"
                continue
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{name}: loads {link}"
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{name}: {link} leads nowhere"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {link}: there is no such anchor"
    for file in sorted([*site.rglob("*.css"), *site.rglob("*.svg")]):
        for found in IN_STYLES.finditer(file.read_text()):
            yield f"{file.relative_to(site)}: loads {found[1] or found[2]}"


def main() -> int:
    """Say what is wrong; exit status 1 if anything is."""
    site = Path(sys.argv[1]).resolve()
    found = list(problems(site))
    print("\n".join(found) or f"{len(list(site.rglob('*.html')))} pages, whole and on their own")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
