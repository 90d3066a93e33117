"""JSON of others is read or refused, never half believed."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.foreign_json import NotJsonError, count, mapping, number, read_json, rows, words


def test_python_tokens_are_read_but_are_no_figures():
    value = mapping(read_json('{"a": NaN, "b": Infinity, "c": 1.5}'))
    assert math.isnan(value["a"])  # type: ignore[arg-type]
    assert number(value["a"]) is None
    assert number(value["b"]) is None
    assert number(value["c"]) == 1.5


def test_a_cut_text_is_told_from_other_text():
    with pytest.raises(NotJsonError) as cut:
        read_json('{"a": 1, "b": 12')
    assert cut.value.cut_off
    with pytest.raises(NotJsonError) as other:
        read_json("<html></html>")
    assert not other.value.cut_off


def test_deep_nesting_is_refused():
    with pytest.raises(NotJsonError):
        read_json("[" * 200_000)


def test_true_is_no_number_and_a_half_is_no_count():
    assert number(True) is None
    assert count(2.0) == 2
    assert count("64") == 64
    assert count(2.5) is None
    assert count(-1) is None
    assert number(10**400) is None


def test_a_lone_object_is_a_list_of_one():
    assert rows({"a": 1}) == [{"a": 1}]
    assert rows([{"a": 1}, 3]) == [{"a": 1}]
    assert rows(None) == []
    assert words("") is None


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(NotJsonError):
        read_json(text)
