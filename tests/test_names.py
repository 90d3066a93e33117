"""Names are safe as folders and metric keys; numbers may be quoted, truth values never numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from configs.names import Count, EnvName, Name, Number, Seconds, decimal, truth_of, whole


def takes(kind: Any, value: Any) -> bool:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", ["a", "k2.5", "aq-medai-k2", "0_x", "a" * 60])
def test_names(name):
    assert takes(Name, name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "A", "-a", "a b", "a\n", "ä", "a" * 61, "a\0", "$x", 3]
)
def test_what_could_leave_a_folder_or_break_a_key_is_no_name(name):
    assert not takes(Name, name)


def test_variables():
    assert takes(EnvName, "NCCL_P2P_LEVEL")
    assert not any(takes(EnvName, name) for name in ["1A", "A B", "A=B", "", "Ä", "A\n"])


@pytest.mark.parametrize(
    ("given", "value"),
    [("30000", 30000), (3.0, 3), ("-4", -4), (7, 7), ("007", 7)],
)
def test_whole_numbers_written_without_loss(given, value):
    found = whole(given)
    assert found == value
    assert type(found) is int


@pytest.mark.parametrize(
    "given", [3.5, True, False, "3.0", "three", "", " 3", "1_000", "\u0663", "1e3", None, [3]]
)
def test_anything_else_stays_as_it_is(given):
    assert whole(given) is given


@pytest.mark.parametrize("value", [True, "yes", 0, -1, 2.5, "2.5", None, float("nan")])
def test_counts_refuse(value):
    assert not takes(Count, value)


def test_numbers_in_quotes():
    assert decimal("0.85") == 0.85
    assert decimal("1e3") == 1000.0
    assert all(decimal(text) == text for text in ["nan", "inf", "0x1", "1,5", "", "1_0"])
    assert takes(Number, 3)
    assert not takes(Number, True)
    assert not takes(Seconds, "0")


@pytest.mark.parametrize(
    ("word", "truth"),
    [("yes", True), ("On", True), ("y", True), ("NO", False), ("off", False), ("nein", None)],
)
def test_words_that_are_truth_values_to_other_readers(word, truth):
    assert truth_of(word) is truth


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()))
def test_no_value_is_too_strange(value):
    assert type(whole(value)) in {type(value), int}
    assert type(decimal(value)) in {type(value), float}
    assert truth_of(value) in {None, True, False}
