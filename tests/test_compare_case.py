"""The comparison passes what says the same, and fails what is absent, wrong or denied."""

from __future__ import annotations

import pytest

from tests.compare_case import differences, names_the_same_thing, same

SMI = "GPU 6: 10151 MiB used, no process visible (other PID namespace, or a dying process)"


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (SMI, "GPU 6 holds 10151 MiB but no process is visible (it may live in another namespace)"),
        ("--enable-metrics", "start the server with --enable-metrics"),
        ("set --speculative-draft-model-path", "--speculative-draft-model-path must be set"),
        ("no speculative steps in this window", "speculative steps: none in the window"),
        ("cuda graphs not used at batch 16", "decode ran without cuda graphs at batch 16"),
        ("/get_server_info then log lines", "try /get_server_info, then read the log lines"),
        (
            "tp differs (8, 4): speedup will not be computed",
            "speedup not computed: tp differs, 8/4",
        ),
        ("local hour stays 17:00", "the local hour stays 17:00 all year"),
    ],
)
def test_other_words_for_the_same_thing(expected, got):
    assert names_the_same_thing(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (SMI, "GPU 5: 9151 MiB used, no process visible"),
        (SMI, "GPU 6: 10151 MiB used"),
        ("--enable-metrics", "--enable-mfu-metrics"),
        ("--enable-metrics", "metrics are off"),
        ("no speculative steps in this window", "speculative steps in this window: 12"),
        ("cuda graphs not used at batch 16", "cuda graphs used at batch 16"),
        ("16 output tokens are fewer than 40 decode steps", "16 of 40 GPUs free"),
        ("boolean: YAML reads bare yes as true", "unknown key"),
        ("unknown key", "empty file"),
        ("unknown key", ""),
    ],
)
def test_a_wrong_or_absent_warning_fails(expected, got):
    assert not names_the_same_thing(expected, got)


def test_every_sentence_names_itself():
    for text in (SMI, "--enable-metrics", "empty file", "40"):
        assert names_the_same_thing(text, text)


def test_a_warning_is_found_among_others_but_an_empty_list_wants_none():
    assert same("warnings", ["empty file"], ["something else", "the file is empty"])
    assert not same("warnings", ["empty file"], [])
    assert same("warnings", [], [])
    assert not same("warnings", [], ["the file is empty"])


def test_figures_are_equal_within_one_percent_and_never_to_nothing():
    assert same("accept_len", 2.63, 2.6294)
    assert not same("accept_len", 2.63, 2.60)
    assert not same("accept_len", 2.63, None)
    assert not same("accept_len", None, 0)
    assert not same("drafts", 0, None)
    assert not same("drafts", 1, True)
    assert not same("accept_len", 2.63, float("nan"))
    assert not same("drafts", 0, 0.5)


def test_identifiers_are_exact():
    assert not same("port", 30000, 30001)
    assert same("max_total_num_tokens", 402112, 402110)
    assert not same("own", [7000, 7100], [7000, 7101])


def test_sets_ignore_order_but_rows_of_figures_do_not():
    assert same("own", [1, 2, 3], [3, 1, 2])
    assert not same("own", [1, 2, 3], [1, 2])
    assert not same("own", [1, 1], [1, 2])
    assert same("per_position", [0.78, 0.52], [0.7801, 0.5199])
    assert not same("per_position", [0.78, 0.52], [0.52, 0.78])


def test_dicts_are_compared_by_the_expected_keys_and_hold_no_nan():
    assert same("metrics", {"a": 1.0}, {"a": 1.0, "b": 2.0})
    assert not same("metrics", {"a": 1.0}, {"a": 1.0, "b": float("nan")})
    assert not same("metrics", {"a": 1.0}, {"b": 1.0})


def test_lists_of_dicts_match_in_any_order():
    rows = [{"gpu": 0, "gi": 3}, {"gpu": 0, "gi": 5}]
    assert same("mig_devices", rows, [{"gpu": 0, "gi": 5, "x": 1}, {"gpu": 0, "gi": 3}])
    assert not same("mig_devices", rows, [{"gpu": 0, "gi": 5}, {"gpu": 0, "gi": 5}])


def test_machine_names_and_literal_values_are_exact():
    assert not same("reason", "gpu_lost", "gpu_was_lost")
    assert not same("argv_element", "/srv/models/k 25 $(touch x); echo", "/srv/models/k 25")
    assert not same("root_line", "KeyError: 'd2t'", "KeyError: d2t is not there")
    assert not same("indent", "    ", "  ")
    assert same("reason", "unknown key", "this key is unknown")


def test_an_outcome_without_the_key_differs_even_if_nothing_was_expected():
    assert differences({"kind": "x", "why": "y", "failure": None}, {}) != []
    assert differences({"kind": "x", "why": "y", "failure": None}, {"failure": None}) == []


@pytest.mark.parametrize(
    ("expected", "got", "same_problem"),
    [
        ("missing", "is missing (sglang needs it): folder of the target", True),
        ("0 is less than 1", "must be at least 1, not 0", True),
        ("needs 16 GPUs, the host has 8", "asks for 16 GPUs, host it has 8: lower tp", True),
        ("boolean: YAML reads bare yes as true", "unknown key", False),
        ("empty file", "unknown key", False),
        ("missing", "", False),
    ],
)
def test_a_problem_at_its_place_may_be_worded_otherwise(expected, got, same_problem):
    rows = [{"field": "tp", "reason": got, "line": 6}]
    assert same("problems", [{"field": "tp", "reason": expected}], rows) is same_problem
    assert not same("problems", [{"field": "dp", "reason": expected}], rows)
