"""What turns the papers into a site: the home page, the places of new pages, links to sources."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# Papers outside docs/ that are pages of the site.
PAPERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "configs/prompts/README.md": "prompts.md",
    "tests/gpu/README.md": "real-run.md",
}
_FENCE = re.compile(r"^(`{3,})yaml (?P<kind>[a-z ]+)$", re.MULTILINE)
# Whichever begins first: fenced code, a link (its text may hold code), code in a line.
_PIECE = re.compile(
    r"^ *(?P<fence>`{3,}).*?^ *(?P=fence)$"
    r"|(?P<image>!?)\[(?P<text>(?:`[^`\n]*`|[^\]\n`])*)\]\((?P<to>[^)\s]+)\)"
    r"|`[^`\n]*`",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Takes the papers outside docs/ in, and gives every page a place in the navigation."""
    for paper, page in PAPERS.items():
        files.append(File.generated(config, page, content=(ROOT / paper).read_text("utf-8")))
    style = (ROOT / "docs" / "site" / "site.css").read_text("utf-8")
    files.append(File.generated(config, "site.css", content=style))
    pages = sorted(file.src_uri for file in files.documentation_pages())
    named = set(_named(config.nav))
    config.nav = _filled(config.nav, [page for page in pages if page not in named])
    left = [page for page in pages if page not in set(_named(config.nav))]
    if left:
        config.nav.append({"More": left})
    return files


def _named(nav: Any) -> Iterator[str]:
    """Every page that a navigation names."""
    match nav:
        case str():
            yield nav
        case list():
            for entry in nav:
                yield from _named(entry)
        case dict():
            for entry in nav.values():
                yield from _named(entry)


def _filled(nav: Any, free: list[str]) -> Any:
    """A navigation in which every folder is the pages in it that are named nowhere."""
    match nav:
        case list():
            filled = []
            for entry in nav:
                inside = _filled(entry, free)
                filled += (
                    inside if isinstance(entry, str) and isinstance(inside, list) else [inside]
                )
            return filled
        case dict():
            return {title: _filled(entry, free) for title, entry in nav.items()}
        case str() if nav.endswith("/"):
            return [page for page in free if page.startswith(nav)]
        case _:
            return nav


def on_page_markdown(markdown: str, page: Page, **_more: Any) -> str:
    """Fences with two words get a title; links lead to pages, or are left out."""
    source = next((p for p, uri in PAPERS.items() if uri == page.file.src_uri), None)
    folder = posixpath.dirname(source or f"docs/{page.file.src_uri}")

    def linked(found: re.Match[str]) -> str:
        return _linked(found, folder, posixpath.dirname(page.file.src_uri))

    text = _PIECE.sub(linked, markdown)
    return _FENCE.sub(lambda found: f'{found[1]}yaml title="{found["kind"]}"', text)


def _linked(found: re.Match[str], folder: str, here: str) -> str:
    """One link as the site needs it; what is no page there stays as its text."""
    if found["to"] is None:  # code
        return found[0]
    to, _, anchor = found["to"].partition("#")
    if re.match(r"[a-z]+:", to) or not to:
        return found[0]
    place = posixpath.normpath(posixpath.join(folder, to))
    if place in PAPERS:
        target = PAPERS[place]
    elif place.startswith("docs/"):
        target = place.removeprefix("docs/")
    else:
        return found["text"]
    if target.rpartition(".")[2] not in {"md", "png"} and not (ROOT / "docs" / target).is_file():
        return found["text"]
    way = posixpath.relpath(target, here or ".")
    return f"{found['image']}[{found['text']}]({way}{'#' + anchor if anchor else ''})"
