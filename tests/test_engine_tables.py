"""The tables of what engines have, against a released wheel; ``make engine-tables`` reads them all."""

from __future__ import annotations

import pytest

from benchmarks.engine_flags import SGLANG, VLLM, options
from benchmarks.engine_versions import WORDS, names
from configs.releases import has, known_flags, known_names, knows_variable, newest, oldest, tabled

FETCHED = "0.5.9"  # a small wheel that other tests fetch too


@pytest.mark.network
def test_the_flags_are_those_of_the_wheel():
    there = {name for option in options("sglang", FETCHED) for name in option.names}
    ours = {name for name, known in known_flags().items() if has(known, FETCHED)}
    assert ours - there == set(), "nothing is claimed that the release lacks"
    assert there - ours == set(), "nothing of the release is missing"


@pytest.mark.network
def test_the_other_names_are_those_of_the_wheel():
    there = names(FETCHED)
    ours = {key for key, known in known_names().items() if has(known, FETCHED)}
    assert ours == there


def test_the_tables_reach_from_the_first_release_to_the_last():
    assert (oldest("sglang"), newest("sglang")) == (SGLANG[0], SGLANG[-1])
    assert (oldest("vllm"), newest("vllm")) == (VLLM[0], VLLM[-1])
    assert tabled("sglang", "0.5.13.post1")
    assert not tabled("sglang", "0.5.24")
    assert not tabled("sglang", "0.5.8")


def test_every_word_that_our_readers_look_for_has_its_releases():
    assert {(kind, text) for kind, text in WORDS} <= set(known_names())
    counts = known_names()["counter", "sglang:spec_verify_calls_total"]
    assert (counts.first, counts.last) == ("0.5.13", "0.5.23")
    assert not has(known_names()["log", "Init torch distributed begin"], "0.5.23")


def test_variables_by_release():
    assert knows_variable("SGLANG_ENABLE_SPEC_V2", "0.5.9") is True
    assert knows_variable("SGLANG_ENABLE_SPEC_V2", "0.5.23") is False
    assert knows_variable("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "0.5.9") is False
    assert knows_variable("SGLANG_NO_SUCH_THING") is False
    assert knows_variable("SGLANG_NO_SUCH_THING", "9.0") is None
    assert knows_variable("NCCL_PROTO") is None


def test_what_vllms_switches_take():
    flags = known_flags("vllm")
    assert flags["enable-prefix-caching"].takes == "switch"
    assert flags["disable-log-stats"].takes == "flag"
    assert flags["max-num-seqs"].takes == "value"
