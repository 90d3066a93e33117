"""Whether the built site leads anywhere but to itself, and nowhere into the void; asks no network.

python -m tests.site_links build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"link", "script", "img", "iframe", "source", "video", "audio"}
_CALLS = {"preconnect", "dns-prefetch", "stylesheet", "icon", "preload"}


class Paper(HTMLParser):
    """One page: its anchors, what it links to, what a browser fetches for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        address = given.get("src") or given.get("href")
        if not address:
            return
        rel = set((given.get("rel") or "").split())
        if tag in _FETCHED and (tag != "link" or rel & _CALLS):
            self.fetched.append(address)
        self.links.append(address)


def broken(site: Path) -> list[str]:
    """Every link of a site that leads nowhere, and everything that it fetches from elsewhere."""
    papers = {
        path.resolve(): Paper(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    wrong = []
    for path, paper in papers.items():
        page = path.relative_to(site.resolve())
        wrong += [f"{page}: fetches {to}" for to in paper.fetched if urlsplit(to).netloc]
        if page.name == "404.html":  # its links begin at the root of wherever the site is served
            continue
        for to in paper.links:
            parts = urlsplit(to)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                wrong.append(f"{page}: {to}: no such file")
            elif parts.fragment and target in papers:
                anchor = unquote(parts.fragment)
                if anchor not in papers[target].anchors | {"__toc"}:
                    wrong.append(f"{page}: {to}: no such anchor")
    return wrong


def main() -> None:
    """Tells what is wrong, and ends with 1 if anything is."""
    site = Path(sys.argv[1])
    wrong = broken(site)
    pages = len(list(site.rglob("*.html")))
    print(*wrong, f"{pages} pages, {len(wrong)} links that lead nowhere", sep="\n")
    sys.exit(bool(wrong) or not pages)


if __name__ == "__main__":
    main()
