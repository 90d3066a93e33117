"""The look at the built site finds what leads nowhere, and what is fetched from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.site_links import broken

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """<html><head><link rel="stylesheet" href="style.css">{head}</head>
<body><h1 id="top">A</h1><a href="#top">up</a> <a href="b/c.html#here">c</a>{body}</body></html>"""


def site(place: Path, head: str = "", body: str = "") -> Path:
    (place / "b").mkdir()
    (place / "style.css").write_text("")
    (place / "index.html").write_text(PAGE.format(head=head, body=body))
    (place / "b" / "c.html").write_text('<a name="here"></a><a href="..">home</a>')
    return place


def test_a_whole_site_has_nothing_broken(tmp_path: Path) -> None:
    outside = '<a href="https://example.org/x">elsewhere</a> <a href="mailto:a@b.c">mail</a>'
    assert broken(site(tmp_path, body=outside)) == []


def test_what_leads_nowhere_is_named(tmp_path: Path) -> None:
    wrong = '<a href="b/c.html#gone">x</a><a href="d.html">y</a><img src="z.png">'
    assert broken(site(tmp_path, body=wrong)) == [
        "index.html: b/c.html#gone: no such anchor",
        "index.html: d.html: no such file",
        "index.html: z.png: no such file",
    ]


def test_what_a_browser_would_fetch_from_elsewhere_is_named(tmp_path: Path) -> None:
    head = '<link rel="preconnect" href="https://fonts.example"><script src="//cdn.example/a.js">'
    assert broken(site(tmp_path, head=f"{head}</script>")) == [
        "index.html: fetches https://fonts.example",
        "index.html: fetches //cdn.example/a.js",
    ]
