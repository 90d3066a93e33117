"""A report's Markdown as HTML: anchors, folds, verdicts marked, and nothing foreign that is alive.

Every tag is written here and every text is escaped; what this module does not know becomes text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markdown_it.tree import SyntaxTreeNode

    from tasks.figures import Picture

OPEN_PARTS = 3
"""A section with more sub-headings than this has them closed."""
LONG_LIST = 8
LONG_CODE = 40
"""Entries and lines, above which a list or a block of code is folded."""
LONG_TABLE = 24
"""Rows, head included, above which a table scrolls in its box."""

_NUMBER = re.compile(r"-|[-+x\[]{0,2} ?\d.*|\[no interval\]")
_VERDICT = re.compile(r"better|worse|same|undecided")
_SPANS = {"strong": "strong", "em": "em", "s": "s"}
_LISTS = {"bullet_list": "ul", "ordered_list": "ol"}


class Body(NamedTuple):
    """What stands between a page's head and its end."""

    header: str
    """HTML of what stands above the first section."""
    sections: tuple[tuple[str, str], ...]
    """Anchor and title of every section, as text."""
    content: str
    """HTML of the sections."""


def render_body(markdown: str, pictures: Mapping[str, Picture]) -> Body:
    """The page's content.

    Args:
        markdown: A report, as :func:`tasks.report.render_report` writes it.
        pictures: Figures by the file name that the Markdown calls them by; an image of any other
            name is shown as its description, so that nothing is ever fetched.
    """
    from markdown_it import MarkdownIt  # only where a page is written
    from markdown_it.tree import SyntaxTreeNode

    root = SyntaxTreeNode(MarkdownIt("js-default").parse(markdown))
    return _Writer(pictures).body(root.children)


class _Writer:
    def __init__(self, pictures: Mapping[str, Picture]) -> None:
        self._pictures = pictures
        self._anchors: Counter[str] = Counter()

    def body(self, blocks: Sequence[SyntaxTreeNode]) -> Body:
        head, sections = _split(blocks, "h2")
        header = self._header(head)
        parts, listed = [], []
        for heading, content in sections:
            anchor, title = self._anchor(heading), _plain(heading)
            listed.append((anchor, title))
            parts.append(
                f'<section>\n<h2 id="{anchor}"><a href="#{anchor}">{escape(title)}</a></h2>\n'
                f"{self._section(content)}\n</section>"
            )
        return Body(header, tuple(listed), "\n".join(parts))

    def _header(self, blocks: Sequence[SyntaxTreeNode]) -> str:
        """What stands above the first section; the first bold line in it is the decision."""
        parts = []
        decided = False
        for block in blocks:
            if not decided and _is_bold(block):
                decided = True
                parts.append(f'<p class="decision">{self._inlines(block)}</p>')
            else:
                parts.append(self._block(block))
        return "<header>\n" + "\n".join(parts) + "\n</header>"

    def _section(self, blocks: Sequence[SyntaxTreeNode]) -> str:
        head, parts = _split(blocks, "h3")
        html = [self._block(block) for block in head]
        is_open = len(parts) <= OPEN_PARTS
        for heading, content in parts:
            title = f'<h3 id="{self._anchor(heading)}">{self._inlines(heading)}</h3>'
            html.append(_fold(title, "\n".join(map(self._block, content)), is_open=is_open))
        return "\n".join(html)

    def _block(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "heading":
                return f'<{node.tag} id="{self._anchor(node)}">{self._inlines(node)}</{node.tag}>'
            case "paragraph":
                return self._inlines(node) if _is_bare(node) else f"<p>{self._inlines(node)}</p>"
            case "bullet_list" | "ordered_list":
                return self._list(node)
            case "blockquote":
                return f"<blockquote>{self._blocks(node)}</blockquote>"
            case "fence" | "code_block":
                return _code(node.content)
            case "table":
                return self._table(node)
            case "hr":
                return "<hr>"
            case _:
                return f"<p>{escape(node.content)}</p>"

    def _blocks(self, node: SyntaxTreeNode) -> str:
        return "\n".join(map(self._block, node.children))

    def _list(self, node: SyntaxTreeNode) -> str:
        tag = _LISTS[node.type]
        items = "\n".join(f"<li>{self._blocks(item)}</li>" for item in node.children)
        html = f"<{tag}>\n{items}\n</{tag}>"
        count = len(node.children)
        return _fold(f"{count} entries", html) if count > LONG_LIST else html

    def _table(self, node: SyntaxTreeNode) -> str:
        """A table in a box of its own that scrolls; columns of figures stand to the right."""
        rows = [row.children for part in node.children for row in part.children]
        texts = [[_plain(cell) for cell in row] for row in rows]
        right = {
            column
            for column in range(len(texts[0]))
            if len(texts) > 1 and all(_NUMBER.fullmatch(row[column]) for row in texts[1:])
        }
        lines = [
            "<tr>"
            + "".join(self._cell(c, texts[0][i], i in right) for i, c in enumerate(row))
            + "</tr>"
            for row in rows
        ]
        body = f"<thead>\n{lines[0]}\n</thead>\n<tbody>\n" + "\n".join(lines[1:]) + "\n</tbody>"
        box = "wide tall" if len(rows) > LONG_TABLE else "wide"
        return f'<div class="{box}" tabindex="0"><table>\n{body}\n</table></div>'

    def _cell(self, node: SyntaxTreeNode, head: str, right: bool) -> str:
        html = self._inlines(node)
        verdict = _VERDICT.match(_plain(node))
        if node.tag == "td" and head == "verdict" and verdict:
            html = f'<span class="verdict {verdict[0]}">{html}</span>'
        side = ' class="number"' if right else ""
        return f"<{node.tag}{side}>{html}</{node.tag}>"

    def _inlines(self, node: SyntaxTreeNode) -> str:
        return "".join(self._inline(child) for child in node.children)

    def _inline(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "inline":
                return self._inlines(node)
            case "strong" | "em" | "s":
                tag = _SPANS[node.type]
                return f"<{tag}>{self._inlines(node)}</{tag}>"
            case "code_inline":
                return f"<code>{escape(node.content)}</code>"
            case "softbreak":
                return "\n"
            case "hardbreak":
                return "<br>"
            case "image":
                return self._picture(str(node.attrs["src"]), node.content)
            case "link":
                return f"{self._inlines(node)} ({escape(str(node.attrs['href']))})"
            case _:
                return escape(node.content)

    def _picture(self, name: str, description: str) -> str:
        picture = self._pictures.get(name)
        if picture is None:
            return escape(description)
        light, dark = (f"data:image/svg+xml;base64,{b64encode(data).decode()}" for data in picture)
        return (
            '<figure class="wide" tabindex="0"><picture>'
            f'<source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img src="{light}" alt="{escape(description)}"></picture></figure>'
        )

    def _anchor(self, heading: SyntaxTreeNode) -> str:
        """The title in small letters; the second of the same name gets a number."""
        anchor = re.sub(r"[^a-z0-9]+", "-", _plain(heading).lower()).strip("-") or "part"
        self._anchors[anchor] += 1
        count = self._anchors[anchor]
        return anchor if count == 1 else f"{anchor}--{count}"


def _split(
    blocks: Sequence[SyntaxTreeNode], tag: str
) -> tuple[list[SyntaxTreeNode], list[tuple[SyntaxTreeNode, list[SyntaxTreeNode]]]]:
    """What comes before the first heading of a level, and every heading with what is under it."""
    before: list[SyntaxTreeNode] = []
    parts: list[tuple[SyntaxTreeNode, list[SyntaxTreeNode]]] = []
    for block in blocks:
        if block.type == "heading" and block.tag == tag:
            parts.append((block, []))
        else:
            (parts[-1][1] if parts else before).append(block)
    return before, parts


def _fold(summary: str, html: str, *, is_open: bool = False) -> str:
    """A part that opens at a click; ``summary`` is HTML."""
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>\n{html}\n</details>"


def _code(text: str) -> str:
    html = f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
    count = text.count("\n")
    return _fold(f"{count} lines", html) if count > LONG_CODE else html


def _plain(node: SyntaxTreeNode) -> str:
    """The text of a node, without marks."""
    if node.children:
        return "".join(map(_plain, node.children))
    return " " if node.type in {"softbreak", "hardbreak"} else node.content


def _is_bare(node: SyntaxTreeNode) -> bool:
    """A paragraph that is no box of its own: in a tight list, or around a single image."""
    only = node.children[0].children if node.children else []
    return node.hidden or (len(only) == 1 and only[0].type == "image")


def _is_bold(node: SyntaxTreeNode) -> bool:
    """A paragraph that is bold from its first to its last letter."""
    if node.type != "paragraph":
        return False
    parts = [part for part in node.children[0].children if part.type != "text" or part.content]
    return [part.type for part in parts] == ["strong"]
