"""Who is told what: the file, its mistakes, and the words of the morning."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from configs.find import SHIPPED
from configs.notices import Notices, Webhook, read_notices
from configs.problems import ConfigError
from configs.read import parse
from flows.morning_text import Night, message

AT = datetime(2026, 11, 29, 21, 0, tzinfo=UTC)


def night(state: str = "Completed", said: str = "It pays. (24 ok)", name: str = "a") -> Night:
    return Night(name, AT, state, said, {"run": "http://p/runs/flow-run/1"})


def test_the_example_is_read_and_no_file_is_no_notices(tmp_path):
    found = read_notices(SHIPPED / "notices.yaml.example")
    assert found is not None
    assert found.morning == ("team", "me")
    assert read_notices(tmp_path / "notices.yaml") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("morning: [team]", "morning: no destination is called 'team': nothing is described"),
        ("to: {a: {kind: pigeon}}", "to.a"),
        ("to: {a: {kind: webhook, url_from: 'https://x/y'}}", "to.a.url_from"),
    ],
)
def test_a_mistake_is_named_at_its_key(text, said):
    with pytest.raises(ConfigError) as wrong:
        parse(Notices, text, "notices.yaml")
    assert said in str(wrong.value)
    assert "https://x/y" not in str(wrong.value), "an address is a secret"


def test_a_secret_that_is_not_set_is_named(monkeypatch):
    from flows.notices import read_secrets

    asked = Notices(to={"hook": Webhook(url_from="EAGLE3_TEST_URL")})
    monkeypatch.delenv("EAGLE3_TEST_URL", raising=False)
    with pytest.raises(ConfigError, match=r"to\.hook\.url_from: EAGLE3_TEST_URL is not set"):
        read_secrets(asked)
    monkeypatch.setenv("EAGLE3_TEST_URL", "http://x")
    assert read_secrets(asked) == {"EAGLE3_TEST_URL": "http://x"}


def test_a_night_is_told_with_its_sentence_and_links():
    subject, text = message([night()], None, due=True) or ("", "")
    assert subject == "eagle3-sweep: a: Completed"
    assert text.splitlines() == [
        "a (2026-11-29 21:00 UTC): Completed",
        "It pays. (24 ok)",
        "run: http://p/runs/flow-run/1",
    ]


def test_a_night_that_has_not_ended_says_how_it_stands():
    _subject, text = message([night("Running", "")], None, due=True) or ("", "")
    assert "it is still running" in text
    _subject, text = message([night("Rerunning", "")], None, due=True) or ("", "")
    assert "it was cut off, and is running again" in text
    _subject, text = message([night("Late", "")], None, due=True) or ("", "")
    assert "is the worker up?" in text


def test_a_night_that_never_began_is_told_and_none_that_was_due_is_not():
    subject, text = message([], None, due=True) or ("", "")
    assert subject == "eagle3-sweep: no night"
    assert "although one was due" in text
    assert message([], None, due=False) is None


def test_several_nights_and_a_host_that_is_not_fit_are_one_message():
    nights = [night(), night("Missed", "missed: planned for ...", "b")]
    subject, text = message(nights, "not fit: box", due=True) or ("", "")
    assert subject == "eagle3-sweep: 1 of 2 nights done; a host is not fit"
    assert text.count("2026-11-29 21:00") == 2
    assert text.endswith("Hosts: not fit: box")
    assert message([], "not fit: box", due=False) is not None


def test_a_lost_host_is_told_once_however_often_it_is_lost():
    from flows.telling import once_each

    told: list[tuple[str, str]] = []
    tell = once_each(lambda host, why: told.append((host, why)))
    for host in ("a", "a", "b", "a"):
        tell(host, "gone")
    assert told == [("a", "gone"), ("b", "gone")]
