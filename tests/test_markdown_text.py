"""Foreign text in the report's Markdown reads as it was written, whatever is in it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tasks.markdown_text import fenced, inline

SIGNS = st.sampled_from("ab_*`[]()<>!&;#-+=~|\\ \n123.):/\"'")
LETTERS = st.characters(min_codepoint=32, exclude_categories=["Cc", "Cs"])


@given(st.one_of(st.text(SIGNS, min_size=1), st.text(LETTERS, min_size=1)))
@example("__init__ of <script>alert(1)</script> &amp; ![x](http://h/x.png)")
@example("1234) x")
@example("[a]: http://h/")
@example("[a](http://h/) [b][a] <http://h/>")
def test_whatever_is_in_it_is_one_paragraph_of_plain_text(text):
    wanted = " ".join(text.split())
    tokens = MarkdownIt("js-default").parse(inline(text))
    if not wanted:
        assert tokens == []
        return
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    pieces = tokens[1].children or []
    assert {piece.type for piece in pieces} <= {"text", "text_special"}
    assert "".join(piece.content for piece in pieces) == wanted


def test_usual_text_stays_as_it_is_for_those_who_read_the_markdown_itself():
    assert inline("0.12.0") == "0.12.0"
    assert inline("-7 %") == "-7 %"
    usual = "[+34, +42] at 8; cuda_graph_max_bs is 16 > 8 (a|b); C:\\x, 50 %, a - b, AT&T, ~3"
    assert inline(usual) == usual


def test_a_fence_is_longer_than_any_in_the_text():
    assert fenced(["```", "x"], "text").splitlines()[0] == "````text"
