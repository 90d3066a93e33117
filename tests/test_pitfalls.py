"""The list of pitfalls names real guards and real classes, and its page is what it says."""

import re
from pathlib import Path

from tasks.check_table import BY_NAME, GUARDS
from tasks.failure_table import FAILURES
from tasks.pitfalls import PITFALLS, findings_markdown

PAGE = Path(__file__).parents[1] / "docs" / "findings.md"


def test_the_page_of_findings_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == findings_markdown(), (
        "docs/findings.md is older than the tables: write findings_markdown() into it"
    )


def test_every_finding_has_its_reason_limit_and_advice_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    for guard in GUARDS:
        assert f"## {guard.name}\n\n{guard.reason}\n" in page
        assert f"- what to do: {guard.advice}\n" in page
    assert "{" not in page


def test_all_pitfalls_are_answered_by_what_exists():
    assert len(PITFALLS) == 25
    assert len({pitfall.name for pitfall in PITFALLS}) == 25
    classes = {row.name for row in FAILURES}
    for pitfall in PITFALLS:
        assert pitfall.seen
        assert pitfall.otherwise
        assert set(pitfall.findings) <= set(BY_NAME)
        for name in re.findall(r"`(\w+)`", pitfall.otherwise):
            assert name in classes


def test_guards_beyond_the_list_are_known_as_such():
    """A new guard names its pitfall, or is added here on purpose."""
    named = {name for pitfall in PITFALLS for name in pitfall.findings}
    beyond = {"requests_failed", "samples_damaged", "context_exceeded", "simulation_not_in_effect"}
    assert set(BY_NAME) - named == beyond
