"""The report as one HTML file: made from its Markdown, with its figures inside, asking nobody."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from tasks.page_body import render_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.figures import Picture

# No script, nothing from anywhere: not even a mistake of ours could fetch something.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_page(markdown: str, *, title: str, pictures: Mapping[str, Picture]) -> str:
    """The whole file.

    Args:
        markdown: The report, from :func:`tasks.report.render_report`; all that is said comes
            from it.
        title: What the browser's tab says: the decision in one sentence.
        pictures: The figures by the names by which the Markdown shows them.
    """
    body = render_body(markdown, pictures)
    links = "\n".join(
        f'<a href="#{anchor}">{escape(section)}</a>' for anchor, section in body.sections
    )
    style = files("tasks").joinpath("report_page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body.header}
<nav aria-label="Sections">
{links}
</nav>
{body.content}
</main>
</body>
</html>
"""
