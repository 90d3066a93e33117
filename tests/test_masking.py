"""No secret is ever kept or shown, however its text is torn, nested or quoted."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.masking import STARS, Mask

SECRETS = st.lists(st.text("abcé'\"\\ \n", min_size=4, max_size=9), min_size=1, max_size=4)
# Letters in common with the secrets, so that much looks like the beginning of one.
NOISE = st.text("abcé'\"\\ \nxyz", max_size=20)


@st.composite
def spoken(draw):
    """Secrets, and a text that holds them, possibly one in another."""
    secrets = draw(SECRETS)
    parts = draw(st.lists(st.one_of(NOISE, st.sampled_from(secrets)), max_size=12))
    return secrets, "".join(parts)


@given(spoken())
def test_no_secret_stays_in_a_text(said):
    secrets, text = said
    kept = Mask(secrets).text(text)
    assert not [secret for secret in secrets if secret in kept]


@given(spoken(), st.data())
def test_no_secret_gets_through_a_stream_however_it_is_torn(said, data):
    secrets, text = said
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    stream = Mask(secrets).stream()
    pieces = [stream.feed(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    kept = b"".join([*pieces, stream.finish()])
    assert not [secret for secret in secrets if secret.encode() in kept]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_what_holds_no_secret_passes_unchanged(raw, cuts):
    stream = Mask(["hunter2-hunter2"]).stream()
    bounds = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    pieces = [stream.feed(raw[a:b]) for a, b in pairwise(bounds)]
    assert b"".join([*pieces, stream.finish()]) == raw


def test_a_stream_holds_back_no_more_than_a_secret_may_need():
    stream = Mask(["hunter2"]).stream()
    assert len(stream.feed(b"x" * 1000)) >= 1000 - len(b"hunter2")


AWKWARD = """p'w "x" \\ é/&="""


@pytest.mark.parametrize(
    "shown",
    [
        AWKWARD,
        json.dumps({"api_key": AWKWARD}),
        json.dumps({"api_key": AWKWARD}, ensure_ascii=False),
        f"ServerArgs(api_key={AWKWARD!r})",
        f"GET /v1?key={quote(AWKWARD, safe='')}",
        shlex.join(["--api-key", AWKWARD]),
    ],
)
def test_a_secret_is_found_as_programs_write_it(shown):
    kept = Mask([AWKWARD]).text(shown)
    assert STARS in kept
    assert "p'w" not in kept
    assert "p%27w" not in kept


def test_of_two_secrets_that_begin_alike_the_longer_is_hidden_whole():
    assert Mask(["abcd", "abcdefgh"]).text("x abcdefgh abcd") == "x *** ***"


def test_an_empty_or_tiny_secret_does_not_blank_everything():
    assert Mask(["", "1"]).text("port 30001") == "port 30001"


def test_an_environment_is_shown_with_named_and_known_secrets_hidden():
    env = {"HF_TOKEN": "hf_abcdef", "URL": "http://u:hf_abcdef@h", "NCCL_PROTO": "LL", "PIN": "1"}
    assert Mask(["hf_abcdef"]).env(env, hidden=["PIN"]) == {
        "HF_TOKEN": "***",
        "NCCL_PROTO": "LL",
        "PIN": "***",
        "URL": "http://u:***@h",
    }
