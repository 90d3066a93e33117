"""The report as one file: nothing is fetched, nothing foreign is alive, all of the Markdown is there."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tasks.compare import compare
from tasks.comparison import SCHEMA, Comparison
from tasks.decision import decision_sentence
from tasks.figure_style import DARK, LIGHT, MARKERS
from tasks.figures import Picture, draw_pictures
from tasks.page_body import LONG_LIST, LONG_TABLE, OPEN_PARTS
from tasks.record import TrialRecord
from tasks.report import render_report
from tasks.report_page import render_page
from tests.builders import failure, finding, record, speeds

H200 = Path(__file__).parent.parent / "docs" / "evidence" / "h200" / "records"
VOID = {"meta", "source", "img", "br", "hr"}
RUNNING = {"a", "code", "em", "s", "span", "strong"}
CALLS = {"script", "iframe", "object", "embed", "link", "form", "base", "svg", "video", "audio"}


class Page(HTMLParser):
    """A page as a reader gets it: text by tag, attributes, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(html)
        self.close()
        assert self.open == [], "tags that nobody closes"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in RUNNING:
            self.handle_data(" ")
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data

    def count(self, tag: str, **wanted: str) -> int:
        return sum(
            name == tag and all(attributes.get(key) == value for key, value in wanted.items())
            for name, attributes in self.tags
        )

    @property
    def text(self) -> str:
        return " ".join(self.texts["main"][0].split())


def page(records: list[TrialRecord], question: str = "Does it pay?") -> tuple[str, str, Page]:
    """A sweep's page: as HTML, the Markdown that it is made from, and as it is read."""
    comparison = compare(records)
    pictures = draw_pictures(comparison)
    markdown = render_report(comparison, records, question=question, figures=tuple(pictures))
    html = render_page(markdown, title=decision_sentence(comparison), pictures=pictures)
    return html, markdown, Page(html)


def h200() -> list[TrialRecord]:
    """The last attempt of every trial of the real run."""
    found = [TrialRecord.model_validate_json(path.read_bytes()) for path in H200.glob("*.json")]
    last = {r.trial: r for r in sorted(found, key=lambda r: r.attempt)}
    return sorted(last.values(), key=lambda r: r.order)


@pytest.fixture(scope="module")
def real() -> tuple[str, str, Page]:
    return page(h200(), "Which of two drafters pays?")


def test_the_real_run_on_a_gpu_says_its_verdict_first(real):
    _, _, read = real
    (title,) = read.texts["title"]
    assert title == decision_sentence(compare(h200()))
    assert title.startswith("Deploy good: +76 % [")
    assert read.text.startswith(f"h200 Which of two drafters pays? {title}. 9 trials on h200")
    assert read.count("p", **{"class": "decision"}) == 1


def test_every_section_of_the_markdown_is_in_the_page_with_an_anchor(real):
    _, markdown, read = real
    wanted = [line[3:] for line in markdown.splitlines() if line.startswith("## ")]
    assert read.texts["h2"] == wanted
    assert len(wanted) == 10
    anchors = [attributes["id"] for tag, attributes in read.tags if tag in {"h2", "h3"}]
    assert len(anchors) == len(set(anchors))
    links = [attributes["href"] for tag, attributes in read.tags if tag == "a"]
    assert set(links) <= {f"#{anchor}" for anchor in anchors}
    assert len(links) == 2 * len(wanted), "in the list of sections, and on each of them"


def test_every_word_and_figure_of_the_markdown_is_in_the_page(real):
    _, markdown, read = real
    pictures, marks = r"!\[[^\]]*\]\([^)]*\)", r"^```\w*$|[*`|]|---"
    plain = re.sub(marks, " ", re.sub(pictures, "", markdown), flags=re.MULTILINE)
    words = re.findall(r"[A-Za-z0-9.,%+/_-]+", plain)
    shown = set(re.findall(r"[A-Za-z0-9.,%+/_-]+", read.text))
    assert len(words) > 1000
    assert set(words) - shown == set()
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert read.count("tr") == len(rows) - read.count("table"), "a row of dashes each"


@pytest.mark.parametrize("records", [h200(), [record("base", status="failed", failure=failure())]])
def test_nothing_is_fetched(records):
    html, _, read = page(records)
    assert not {tag for tag, _ in read.tags} & CALLS
    for tag, attributes in read.tags:
        for name in ("src", "srcset", "href", "action", "background", "poster", "data"):
            value = attributes.get(name, "#")
            assert value.startswith(("#", "data:image/svg+xml;base64,")), (tag, name, value[:80])
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    (style,) = read.texts["style"]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in html


def test_figures_are_there_in_light_and_dark(real):
    _, markdown, read = real
    names = re.findall(r"\]\(([^)]*\.png)\)", markdown)
    assert names == ["speed-load.png", "steps-load.png", "acceptance-load.png"]
    dark = [attributes for tag, attributes in read.tags if tag == "source"]
    light = [attributes for tag, attributes in read.tags if tag == "img"]
    assert len(dark) == len(light) == len(names)
    assert {a["media"] for a in dark} == {"screen and (prefers-color-scheme: dark)"}
    assert all(len(a["alt"]) > 30 for a in light)
    for sources, look in (([a["src"] for a in light], LIGHT), ([a["srcset"] for a in dark], DARK)):
        for source in sources:
            drawn = b64decode(source.partition(",")[2]).decode()
            assert f"fill: {look.ground}" in drawn
            assert look.arms[0].lower() in drawn.lower()
            assert "<script" not in drawn
            linked = set(re.findall(r'(?:href|src)="([^"#]+)', drawn)) | set(
                re.findall(r"@import", drawn)
            )
            assert linked == set()


def test_the_page_has_two_colour_schemes_and_a_printed_one(real):
    html, _, read = real
    (style,) = read.texts["style"]
    light, _, rest = style.partition("@media screen and (prefers-color-scheme: dark)")
    names = re.findall(r"(--[a-z-]+): (#[0-9a-f]{6});", light)
    dark = dict(re.findall(r"(--[a-z-]+): (#[0-9a-f]{6});", rest))
    assert {name for name, _ in names} == set(dark)
    assert dict(names)["--ground"] == LIGHT.ground
    assert dark["--ground"] == DARK.ground
    assert "@media print" in style
    assert 'name="color-scheme" content="light dark"' in html


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_its_ground(real, scheme):
    (style,) = real[2].texts["style"]
    part = style.split("@media screen and (prefers-color-scheme: dark)")[scheme]
    colour = dict(re.findall(r"(--[a-z-]+): (#[0-9a-f]{6});", part))
    pairs = [(f"--{v}", f"--{v}-ground") for v in ("better", "worse", "same", "undecided")]
    pairs += [
        (f"--{name}", ground)
        for name in ("ink", "faint", "accent", "alarm")
        for ground in ("--ground", "--raised")
    ]
    found = {pair: contrast(*(colour[name] for name in pair)) for pair in pairs}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_figures_can_be_read_on_their_ground(look):
    assert min(contrast(c, look.ground) for c in (look.ink, look.faint, look.warning)) >= 4.5
    assert min(contrast(c, look.ground) for c in look.arms) >= 2.2
    assert len({(i % len(look.arms), (i + 1) % len(MARKERS)) for i in range(24)}) == 24


def test_a_verdict_is_a_word_and_not_a_colour_alone(real):
    _, markdown, read = real
    marked = [
        (a["class"].split()[1]) for tag, a in read.tags if a.get("class", "").startswith("verdict ")
    ]
    assert [text.split()[0] for text in read.texts["span"]] == marked
    assert len(marked) == sum(
        bool(re.search(r"\| (better|worse|same|undecided)[^|]*\|$", line))
        for line in markdown.splitlines()
    )
    assert {"better", "worse", "undecided"} <= set(marked)


def test_foreign_text_is_inert():
    evil = "<script>alert(1)</script><img src=http://h/x onerror=alert(2)> ![x](http://h/x.png)"
    link = "[here](javascript:alert(3)) <http://h/> &lt;b&gt; __init__ **no**"
    broken = failure(message=f"{evil} {link}", first_lines=(evil, "```", "</code></pre>" + evil))
    records = [
        *speeds("base", {1: {1: 50.0}, 2: {1: 51.0}}),
        *speeds("eagle", {1: {1: 60.0}, 2: {1: 61.0}}, 2.0),
        record("bad", 1, (), status="failed", failure=broken),
        record("odd", 1, status="suspect", findings=(finding(evidence=evil, advice=link),)),
        record("late", 1, (), status="skipped", notes=(link,)),
        record("alien", 1, must_match={"target": evil, "driver": "| x | y |"}),
    ]
    _, _, read = page(records, question=evil)
    tags = {tag for tag, _ in read.tags}
    assert not tags & CALLS
    assert read.count("img") == 3, "the figures"
    hrefs = {attributes["href"] for tag, attributes in read.tags if tag == "a"}
    assert all(href.startswith("#") for href in hrefs)
    assert not [a for _, a in read.tags if any(name.startswith("on") for name in a)]
    for part in (evil, link):
        assert read.text.count(part) >= 2, part
    assert any(evil in text for text in read.texts["pre"])
    assert read.text.count(evil) >= 5, "question, message, two lines, finding, refusal"
    assert "| x | y |" in read.text


def test_a_title_is_text():
    html = render_page("# x\n", title="</title><script>x</script>", pictures={})
    assert Page(html).texts["title"] == ["</title><script>x</script>"]


def test_an_image_that_is_none_of_ours_is_its_description_and_a_link_its_address():
    text = "# x\n\n![a plan](http://h/a.png)\n\n[there](http://h/) and <b>bold</b>\n"
    read = Page(render_page(text, title="x", pictures={}))
    assert read.text == "x a plan there (http://h/) and <b>bold</b>"
    mine = {"a.png": Picture(b"<svg/>", b"<svg/>")}
    assert Page(render_page("![a](a.png)\n", title="x", pictures=mine)).count("img") == 1


def test_markdown_of_any_kind_is_shown():
    text = (
        "# x\n\n> said\n\n1. one\n2. two\n\n---\n\n#### deep\n\n    code\n\na  \nb *c* ~~d~~ `e`\n"
    )
    read = Page(render_page(text, title="x", pictures={}))
    assert read.text == "x said one two deep code a b c d e"
    assert {"blockquote", "ol", "hr", "h4", "pre", "br", "em", "s", "code"} <= set(read.texts)


def test_the_page_of_a_long_night_stays_short():
    """Two hundred trials: long lists fold, long tables scroll, parts of long sections are closed."""
    records = []
    for block in range(1, 9):
        for arm in range(25):
            name = "base" if arm == 0 else f"arm{arm:02d}"
            if arm == 24:
                failed = failure(message=f"port {block}", first_lines=("x",) * 60)
                records.append(record(name, block, (), status="failed", failure=failed))
            elif arm == 23:
                found = (finding(), finding(where="load c64"))
                records.append(record(name, block, status="suspect", findings=found))
            else:
                records += speeds(name, {block: {1: 50.0 + arm, 8: 40.0 + arm}}, 1.0 + arm / 10)
    assert len(records) == 200
    html, _, read = page(records)
    assert len(html) < 2_000_000
    closed = [a for tag, a in read.tags if tag == "details" and "open" not in a]
    opened = [a for tag, a in read.tags if tag == "details" and "open" in a]
    assert len(opened) == 1, "the only finding"
    failures = 8
    settings = 24
    assert len(closed) >= failures + settings + 1
    assert "16 entries" in read.texts["summary"]
    assert read.count("div", **{"class": "wide tall"}) >= 2
    assert OPEN_PARTS < failures < settings
    assert LONG_LIST < 16
    assert 2 * (settings - 2) > LONG_TABLE
    assert len(set(read.texts["h3"])) == len(read.texts["h3"]), "a closed part says what is in it"


def test_a_rehearsal_says_so_in_the_page():
    records = [record("base", rehearsal=True), record("b", rehearsal=True)]
    read = page(records)[2]
    assert read.text.startswith("REHEARSAL: no claim about any GPU.")
    assert read.count("blockquote") == 1


def test_the_same_records_give_the_same_page():
    records = h200()
    assert page(records)[0] == page(records)[0]


def test_machines_read_the_comparison_and_find_its_schema():
    comparison = compare(h200())
    data = json.loads(comparison.model_dump_json())
    assert data["schema_version"] == SCHEMA
    assert Comparison.model_validate(data) == comparison


def test_headings_go_down_one_by_one(real):
    levels = [int(tag[1]) for tag, _ in real[2].tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def contrast(a: str, b: str) -> float:
    """WCAG's ratio of two colours."""
    dark, light = sorted(map(_luminance, (a, b)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
