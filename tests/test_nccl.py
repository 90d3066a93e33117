"""What is said of communication variables before a night is spent on them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.host import Host
from configs.nccl import lacks_ring, similar, value_problem, variables
from configs.problems import ConfigError
from configs.read import parse
from configs.rules import problems, warnings
from tests.sweeps import HOST, sweep, unchecked

LL = "    ll: {env: {NCCL_PROTO: LL}}"
KINDS = {"one", "int", "list", "joined", "level", "functions", "text", "path", "secret"}


def level(given: str) -> list[str]:
    """Warnings on a sweep whose second level is this."""
    said = warnings(sweep((LL, f"    ll: {{{given}}}")))
    return [f"{one.where}: {one.message}" for one in said]


def wrong(given: str) -> list[str]:
    return [
        f"{one.where.removeprefix('factors.nccl.ll.env.')}: {one.message.split(' (NCCL')[0]}"
        for one in problems(unchecked((LL, f"    ll: {{{given}}}")))
    ]


def test_every_row_of_the_table_can_be_read():
    table = variables()
    assert len(table) == 129
    for name, row in table.items():
        assert re.fullmatch(r"NCCL_[A-Z0-9_]+", name)
        assert row.values.partition(":")[0] in KINDS
        assert re.fullmatch(r"(2(\.\d+)+)?", row.since)
        assert bool(row.ended) == bool(row.instead)
        assert not row.instead or row.instead in table
        assert row.source.endswith("#" + name.lower().replace("_", "-"))


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(variables())),
    st.text(max_size=20) | st.text("aeglrt01:;,^|-", max_size=12),
)
def test_any_value_gets_an_answer(name, value):
    said = value_problem(name, value)
    assert said is None or (said and "NCCL's user guide" in said)


@pytest.mark.parametrize(
    "asked",
    [
        "NCCL_PROTO: 'LL,Simple'",
        "NCCL_PROTO: ^LL128",
        "NCCL_PROTO: 'allreduce:ll;broadcast:^simple'",
        "NCCL_ALGO: 'ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring'",
        "NCCL_ALGO: 'allreduce:^tree'",
        "NCCL_P2P_LEVEL: sys",
        "NCCL_MIN_CTAS: '64'",
        "NCCL_DEBUG: info",
        "NCCL_DEBUG_SUBSYS: 'INIT,ENV,GRAPH,TUNING'",
        "NCCL_DEBUG_SUBSYS: '^ALLOC'",
        "NCCL_CTA_POLICY: 'EFFICIENCY|ZERO'",
        "NCCL_IB_GID_INDEX: '-1'",
        "NCCL_NVLS_ENABLE: '1'",
        "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE: '1'",
        "CUDA_VISIBLE_DEVICES: '0,1,2,3'",
    ],
)
def test_what_the_guide_allows_passes_without_a_word(asked):
    assert wrong(asked) == []
    assert level(asked) == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("NCCL_PROTO: LLL", "NCCL_PROTO: holds 'LLL': did you mean LL?"),
        ("NCCL_PROTO: ''", "NCCL_PROTO: holds '': one of LL, LL128, Simple"),
        ("NCCL_ALGO: 'Ring;Tree'", "NCCL_ALGO: has 'Tree' behind a ';' without its collective: write allreduce:Tree"),
        ("NCCL_ALGO: 'allredus:Tree'", "NCCL_ALGO: names the collective 'allredus': did you mean allreduce?"),
        ("NCCL_P2P_LEVEL: NVLINK", "NCCL_P2P_LEVEL: is 'NVLINK': did you mean NVL?"),
        ("NCCL_MIN_CTAS: '65'", "NCCL_MIN_CTAS: must be a whole number from 1 to 64, not 65"),
        ("NCCL_BUFFSIZE: 32M", "NCCL_BUFFSIZE: must be a whole number of at least 1, not '32M'"),
        ("NCCL_NTHREADS: '96'", "NCCL_NTHREADS: is '96': one of 64, 128, 256, 512"),
        ("NCCL_P2P_DISABLE: 'true'", "NCCL_P2P_DISABLE: is 'true': one of 0, 1"),
        ("NCCL_DEBUG_SUBSYS: 'INIT,TUNE'", "NCCL_DEBUG_SUBSYS: holds 'TUNE': did you mean TUNING?"),
        ("NCCL_DEBUG_FILE: ~/x", "NCCL_DEBUG_FILE: begins with ~, which NCCL does not expand: write the whole path"),
        ("CUDA_VISIBLE_DEVICES: GPU-1-2", "CUDA_VISIBLE_DEVICES: is 'GPU-1-2': SGLang reads it with int() and ends at once on a UUID (custom_all_reduce_utils.py); name GPUs by number, such as 0,1,2,3"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_an_error_with_what_would_be_right(asked, said):
    assert wrong(asked) == [said]


def test_a_key_of_nccls_stands_in_no_file():
    (said,) = wrong("NCCL_PSK: 0123456789abcdef0123456789abcdef")
    assert said.startswith("NCCL_PSK: ")
    assert "env_from" in said
    assert "0123" not in said


def test_the_hosts_own_environment_is_held_to_the_same():
    with pytest.raises(ConfigError) as caught:
        parse(Host, repr(HOST | {"env": {"NCCL_P2P_LEVEL": "FAR"}}).replace("'", '"'), "host.yaml")
    assert "host.yaml:1: env.NCCL_P2P_LEVEL: is 'FAR': one of LOC" in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("NCCL_PROTOCOL: LL", "knows no such variable, and NCCL would ignore it silently: did you mean NCCL_PROTO?"),
        ("NCCL_MIN_CTA: '8'", "did you mean NCCL_MIN_CTAS?"),
        ("NCCL_GRAPH_FILE: /x.xml", "knows no such variable"),
        ("NCCL_MIN_NCHANNELS: '8'", "is deprecated since NCCL 2.17: use NCCL_MIN_CTAS"),
        ("NCCL_TREE_THRESHOLD: '0'", "was removed in NCCL 2.5: use NCCL_ALGO"),
        ("NCCL_P2P_LEVEL: '2'", "2 means PXB to NCCL, and numbers may change their meaning: write PXB"),
        ("NCCL_P2P_LEVEL: '5'", "5 means SYS to NCCL"),
        ("NCCL_ALGO: Tree", "write allreduce:Tree"),
        ("NCCL_PROTO: LL128", "LL128 can corrupt data"),
        ("CUDA_DEVICE_MAX_CONNECTIONS: '64'", "has no effect: SGLang sets it to 8 always"),
        ("CUDA_MODULE_LOADING: LAZY", "has no effect: SGLang sets it to AUTO always (0.5.9"),
        ("NCCL_NVLS_ENABLE: '0'", "changes nothing: SGLang sets it to 0 by itself here"),
        ("NCCL_CUMEM_ENABLE: '0'", "changes nothing: SGLang sets it to 0 by itself here"),
        ("NCCL_CUMEM_ENABLE: '0', enable-symm-mem: true", "has no effect: with enable-symm-mem SGLang sets it to 1"),
        ("NCCL_NVLS_ENABLE: '2', enable-nccl-nvls: true", "has no effect: with enable-nccl-nvls SGLang sets it to 1"),
        ("NCCL_GRAPH_MIXING_SUPPORT: '0', dcp-size: 2", "changes nothing: SGLang sets it to 0 by itself here"),
    ],
)  # fmt: skip
def test_a_variable_without_effect_is_named_before_the_launch(asked, said):
    (found,) = level(asked)
    name = asked.partition(":")[0]
    assert found.startswith(f"factors.nccl.ll.env.{name}: ")
    assert said in found


def test_what_a_flag_elsewhere_overwrites_is_named_where_the_variable_stands():
    said = warnings(
        sweep(
            (LL, "    ll: {NCCL_CUMEM_ENABLE: '0'}"),
            ("    tp-size: 8\n", "    tp-size: 8\n    enable-symm-mem: true\n"),
        )
    )
    assert [(one.where, one.message) for one in said] == [
        (
            "factors.nccl.ll.env.NCCL_CUMEM_ENABLE",
            "has no effect: with enable-symm-mem SGLang sets it to 1",
        )
    ]


def test_on_one_gpu_no_variable_of_nccl_matters():
    alone = ("    tp-size: 8\n", "")
    assert [(one.where, one.message) for one in warnings(sweep(alone))] == [
        (
            "factors.nccl.ll.env.NCCL_PROTO",
            "changes nothing: one GPU serves here (tp-size), and talks to no other",
        )
    ]
    assert (
        warnings(sweep(alone, (LL, "    ll: {NCCL_DEBUG: INFO, SGLANG_ENABLE_SPEC_V2: '1'}"))) == []
    )


@pytest.mark.parametrize(
    ("value", "lacks"),
    [
        ("Ring", False),
        ("Tree", True),
        ("ring,tree", False),
        ("^Tree", False),
        ("^Ring", True),
        ("allreduce:tree", False),
        ("allgather:tree", True),
        ("ring;allreduce:tree", False),
        ("allreduce:^ring", False),
    ],
)
def test_only_all_reduce_can_do_without_ring(value, lacks):
    """A recorded start of SGLang with NCCL_ALGO=Tree ended in AllGather, which has no Tree."""
    assert lacks_ring(value) == lacks


def test_a_name_far_from_all_others_gets_no_suggestion():
    assert similar("NCCL_ZZZZZZZZZZZ") is None
    assert similar("NCCL_NVLS_ENABLED") == "NCCL_NVLS_ENABLE"
