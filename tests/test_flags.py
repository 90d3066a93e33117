"""Flags are taken by full name and right kind, so that a file means the same next year."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.flags import (
    canonical,
    flag_problems,
    flag_value,
    in_version,
    unknown_flags,
    whole_flag,
)
from configs.releases import known_flags

WRONG: dict[str, tuple[str, Any, str]] = {
    "abbreviation": (
        "tp",
        8,
        "is an abbreviation (argparse would take it silently): write it in full: tp-size",
    ),
    "many abbreviated": (
        "speculative-dr",
        "x",
        (
            "is an abbreviation (argparse would take it silently): write it in full: "
            "speculative-draft-attention-backend, speculative-draft-kv-cache-dtype, "
            "speculative-draft-load-format, speculative-draft-model-path, ..."
        ),
    ),
    "misspelt": (
        "mem-fraction-statik",
        0.8,
        "is not a flag of any known SGLang release: did you mean mem-fraction-static?",
    ),
    "dashes": (
        "--tp-size",
        8,
        "is not a flag's name: write tp-size (no leading dashes, no underscores)",
    ),
    "underscores": (
        "tp_size",
        8,
        "is not a flag's name: write tp-size (no leading dashes, no underscores)",
    ),
    "capitals": (
        "TP-size",
        8,
        "is not a flag's name: write tp-size (no leading dashes, no underscores)",
    ),
    "hostile": (
        "x; rm",
        1,
        "is not a flag's name: lower-case letters, digits and '-' are allowed",
    ),
    "empty": ("", 1, "is not a flag's name: lower-case letters, digits and '-' are allowed"),
    "dashes alone": (
        "--",
        1,
        "is not a flag's name: lower-case letters, digits and '-' are allowed",
    ),
    "model": ("model", "/m", "is set elsewhere: use engine.model"),
    "port": ("port", 1, "is set elsewhere: use the host file's port"),
    "key": ("api-key", "x", "is set elsewhere: use the host file's api_key_from"),
    "other key": (
        "admin-api-key",
        "x",
        "would put a secret into a file and into every list of processes: leave it out",
    ),
    "speculation": ("speculative-num-steps", 3, "is set by speculation: write it there"),
    "alias of it": ("speculative-draft-model", "/d", "is set by speculation: write it there"),
    "word": (
        "trust-remote-code",
        "yes",
        "has the word 'yes': write true (YAML 1.2 knows only these two)",
    ),
    "word for a number": (
        "tp-size",
        "yes",
        "must be a whole number, not 'yes' (a boolean to many readers of YAML)",
    ),
    "truth for a number": ("tp-size", True, "must be a whole number, not true (a boolean)"),
    "text for a number": ("tp-size", "all", "must be a whole number, not 'all'"),
    "fraction for a whole number": ("tp-size", 7.5, "must be a whole number, not 7.5"),
    "list for a number": ("tp-size", (8,), "must be a whole number, not [8]"),
    "zero": ("tp-size", 0, "must be at least 1, not 0"),
    "negative": ("max-running-requests", -1, "must be at least 1, not -1"),
    "fraction above one": ("mem-fraction-static", 1.2, "must be a number between 0 and 1, not 1.2"),
    "percent": ("mem-fraction-static", "85%", "must be a number between 0 and 1, not '85%'"),
    "empty list": (
        "cuda-graph-bs",
        (),
        "is an empty list: name an element, or leave the flag out",
    ),
    "dash in a list": (
        "cuda-graph-bs",
        (1, "-x"),
        "has the element '-x': argparse would take it for another flag",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_flag_is_named_with_the_right_one(name):
    flag, value, message = WRONG[name]
    assert list(flag_problems({flag: value})) == [(flag, message)]


@pytest.mark.parametrize("flag", ["hf-token", "some-api-key", "tls-password", "other-secret"])
def test_a_flag_that_is_called_after_a_secret_is_refused(flag):
    """Also one that no release in the table has: its value would stand in every list."""
    ((named, message),) = flag_problems({flag: "canary5b1d7c"})
    assert named == flag
    assert message.startswith("would put a secret into a file and into every list of processes")
    assert "canary" not in message


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_sweep_cannot_open_the_engine_to_the_network(host):
    (problem,) = flag_problems({"host": host})
    assert problem.message == "is set elsewhere: use the host file's listen"


def test_two_names_of_one_flag_are_refused():
    (problem,) = flag_problems({"tp-size": 8, "tensor-parallel-size": 8})
    assert problem == (
        "tensor-parallel-size",
        "is another name of tp-size, which is given too: keep one",
    )


@pytest.mark.parametrize(
    "flags",
    [
        {"tp-size": 8, "mem-fraction-static": 0.85, "trust-remote-code": True},
        {"chunked-prefill-size": -1},
        {"cuda-graph-bs": (1, 2, 4)},
        {"disable-cuda-graph": False},
        {"json-model-override-args": '{"a": 1}'},
        {"a-flag-of-tomorrow": 1},
    ],
)
def test_right_flags_pass(flags):
    assert list(flag_problems(flags)) == []


def test_flags_beyond_the_table_are_told_apart():
    assert unknown_flags({"tp-size": 8, "a-flag-of-tomorrow": 1}) == ["a-flag-of-tomorrow"]
    assert in_version("a-flag-of-tomorrow", "0.5.9") is None


def test_the_table_knows_when_a_flag_came_and_went():
    assert in_version("cuda-graph-max-bs", "0.5.9") is True
    assert in_version("cuda-graph-max-bs", "0.5.23") is False
    assert in_version("cuda-graph-max-bs-decode", "0.5.9") is False
    assert in_version("cuda-graph-max-bs-decode", "0.5.23") is True
    assert in_version("tp-size", "9.0") is None


def test_every_row_of_the_table_is_whole():
    table = known_flags()
    assert len(table) > 500
    for name, row in table.items():
        assert row.name == name
        assert row.canonical in table
        assert in_version(name, row.first)
        assert in_version(name, row.last)


def test_a_value_is_found_under_any_name():
    assert flag_value({"tensor-parallel-size": 4}, "tp-size") == 4
    assert flag_value({}, "tp-size") is None
    assert whole_flag({"tp-size": True}, "tp-size") is None
    assert canonical("tensor-parallel-size") == "tp-size"


SCALAR = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)


@given(st.dictionaries(st.text(max_size=8), SCALAR | st.lists(SCALAR, max_size=3).map(tuple)))
def test_any_flags_are_judged_without_an_exception(flags):
    assert all(problem.message for problem in flag_problems(flags))
