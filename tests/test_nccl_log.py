"""NCCL's own words are read as they are: real logs of three settings, and lines of its sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.nccl_log import Choice, read_nccl_log

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"


def read(name: str):
    return read_nccl_log((FIXTURES / f"{name}.log").read_text().splitlines())


def test_what_nccl_did_by_itself():
    log = read("nccl-default")
    assert (log.version, log.ranks, log.network) == ("2.28.9+cuda13.0", 2, "Socket")
    assert log.links == {"P2P/IPC": 96}
    assert log.transports == ("P2P",)
    assert (log.rings, log.channels, log.nvls_channels, log.trees) == (24, 24, 0, True)
    assert log.taken == {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
    assert (log.allowed, log.warnings) == ({}, ())


def test_a_protocol_that_was_asked_for_was_taken():
    log = read("proto-LL")
    assert log.taken["NCCL_PROTO"] == "LL"
    assert log.allowed["AllReduce"].protocols == ("LL",)
    assert {"Ring", "Tree"} <= set(log.allowed["AllReduce"].algorithms)


def test_an_algorithm_that_cannot_do_everything_is_refused_in_ncclss_words():
    log = read("algo-Tree")
    assert log.taken["NCCL_ALGO"] == "Tree"
    assert log.allowed["AllGather"].algorithms == ("Tree",)
    (warning,) = log.warnings
    assert "no algorithm/protocol available for function AllGather" in warning
    assert warning.endswith("NCCL_ALGO was set to Tree.")


def test_which_kernel_is_taken_at_a_size():
    log = read_nccl_log(
        f"box:7:7 [0] NCCL INFO AllReduce: {size} Bytes -> Algo {algo} proto {proto} "
        f"channel{{Lo..Hi}}={{0..{last}}}"
        for size, algo, proto, last in [
            (14336, "RING", "LL", 0),
            (14336, "RING", "LL", 0),
            (114688, "RING", "LL128", 7),
        ]
    )
    assert len(log.choices) == 2
    assert log.choice_at(14336) == Choice(
        function="AllReduce", size_bytes=14336, algorithm="RING", protocol="LL", channels=1
    )
    assert log.choice_at(100_000) == log.choice_at(14336)
    assert log.choice_at(200_000) == log.choices[1]
    assert log.choices[1].protocol == "LL128"
    assert log.choice_at(100) is None
    assert log.choice_at(114688, "AllGather") is None


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("NCCL_IB_HCA set to mlx5_0:1,mlx5_1:1", "NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1"),
        ("NCCL_MIN_CTAS set by environment to 8.", "NCCL_MIN_CTAS", "8"),
        ("NCCL_P2P_LEVEL set by environment to SYS", "NCCL_P2P_LEVEL", "SYS"),
    ],
)
def test_other_variables_in_their_own_wordings(text, name, value):
    assert read_nccl_log([f"box:1:2 [3] NCCL INFO {text}"]).taken == {name: value}


def test_lines_of_others_in_between_do_no_harm():
    lines = (FIXTURES / "algo-Tree.log").read_text().splitlines()
    mixed = [part for line in lines for part in (line, "[2026-11-29 16:55:39 TP0] Load weight")]
    assert read_nccl_log(mixed).taken == read("algo-Tree").taken


@given(st.lists(st.text(max_size=300), max_size=20))
def test_any_text_is_read_without_a_fault(lines):
    read_nccl_log([f"h:1:1 [0] NCCL INFO {line}" for line in lines] + lines)
