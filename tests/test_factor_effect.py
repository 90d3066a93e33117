"""A level that cannot change decode is named with its reason before the night is spent on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.factor_effect import (
    Decode,
    Evidence,
    VariableEffect,
    engine_writes,
    judge_variables,
    without_effect,
)
from tasks.nccl_log import read_nccl_log
from tasks.reduce_path import ReducePath, read_said, reduce_path
from tasks.screen_sizes import Sizes

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"
SIZES = Sizes(hidden=4096, dtype="bfloat16", rows=(1, 8, 32))
BLIND = Evidence(None, None)


def nccl(name: str, *more: str) -> Evidence:
    lines = (FIXTURES / f"{name}.log").read_text().splitlines()
    return Evidence(read_nccl_log([*lines, *more]), None)


def chosen(protocol: str) -> list[str]:
    return [
        f"vm:1:1 [0] NCCL INFO AllReduce: {size} Bytes -> Algo RING proto {protocol} "
        "channel{Lo..Hi}={0..1}"
        for size in SIZES.bytes
    ]


def path(*lines: str, tp: int = 2, version: str = "0.5.12.post1", env=None):
    return reduce_path(
        read_said(lines), env or {}, version=version, tp=tp, row_bytes=SIZES.row_bytes
    )


CUSTOM = path("server_args=ServerArgs(tp_size=2, disable_custom_all_reduce=False)")
BY_NCCL = path("server_args=ServerArgs(tp_size=2, disable_custom_all_reduce=True)")


def judged(
    asked: dict[str, str],
    here: Evidence = BLIND,
    reference: Evidence = BLIND,
    through: ReducePath = BY_NCCL,
    tp: int = 2,
) -> tuple[VariableEffect, ...]:
    return judge_variables(asked, here, reference, Decode(through, SIZES, tp))


def one(asked: dict[str, str], *args: Any, **more: Any) -> VariableEffect:
    (found,) = judged(asked, *args, **more)
    return found


def test_a_protocol_cannot_matter_while_the_engines_own_kernel_carries_every_size():
    found = one({"NCCL_PROTO": "LL"}, nccl("proto-LL"), nccl("nccl-default"), CUSTOM)
    assert found.effect == "cannot_matter"
    assert "8 KiB to 256 KiB" in found.reason
    assert "custom all-reduce v2 (JIT) up to 16 MiB, not NCCL" in found.reason
    assert without_effect([found])


def test_the_same_protocol_is_taken_where_nccl_works():
    found = one({"NCCL_PROTO": "LL"}, nccl("proto-LL"), nccl("nccl-default"))
    assert (found.effect, found.reason) == ("taken", "NCCL says: set to LL")
    assert not without_effect([found])


def test_a_protocol_that_nccl_takes_anyway_changes_nothing():
    here, default = nccl("proto-LL", *chosen("LL")), nccl("nccl-default", *chosen("LL"))
    found = one({"NCCL_PROTO": "LL"}, here, default)
    assert found.effect == "cannot_matter"
    assert "RING LL at every size" in found.reason
    other = nccl("nccl-default", *chosen("LL128"))
    assert one({"NCCL_PROTO": "LL"}, here, other).effect == "taken"


def test_with_one_gpu_nothing_is_sent():
    assert one({"NCCL_ALGO": "Ring"}, tp=1).reason == "one GPU: nothing is sent"


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("NCCL_IB_HCA", "is for InfiniBand, and all links are P2P/IPC"),
        ("NCCL_SOCKET_NTHREADS", "is for data over sockets"),
        ("NCCL_NET_GDR_LEVEL", "between machines"),
        ("NCCL_SHM_DISABLE", "shared memory"),
        ("NCCL_NVLS_CHUNKSIZE", "has no channels here, set or not"),
        ("NCCL_COLLNET_ENABLE", "inside the network"),
        ("NCCL_MNNVL_ENABLE", "several machines"),
        ("NCCL_DEBUG", "only changes what NCCL writes"),
    ],
)
def test_a_variable_of_a_link_that_is_not_used_cannot_matter(variable, said):
    here = nccl("nccl-default")
    found = one({variable: "1"}, here, here)
    assert found.effect == "cannot_matter"
    assert said in found.reason


@pytest.mark.parametrize("variable", ["NCCL_P2P_LEVEL", "NCCL_BUFFSIZE", "NCCL_CTA_POLICY"])
def test_what_nobody_speaks_against_is_not_called_useless(variable):
    here = nccl("nccl-default")
    assert one({variable: "1"}, here, here).effect == "not_seen"


def test_nvls_may_matter_where_a_level_brings_it():
    on = nccl("nccl-default", "vm:1:1 [0] NCCL INFO 24 coll channels, 16 nvls channels, 32 p2p")
    assert one({"NCCL_NVLS_ENABLE": "1"}, on, nccl("nccl-default")).effect == "taken"


def test_what_the_engine_writes_over_is_named_by_what_its_processes_have():
    asked = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    seen = Evidence(None, {"CUDA_DEVICE_MAX_CONNECTIONS": "8"})
    assert one(asked, seen).reason == "the engine's own processes have 8"
    assert one(asked).reason == "SGLang sets it to 8 whatever is asked"
    assert without_effect(judged(asked))


def test_a_level_with_one_good_variable_is_not_useless():
    asked = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_PROTO": "LL"}
    assert not without_effect(judged(asked, nccl("proto-LL"), nccl("nccl-default")))
    assert not without_effect(())


def test_the_engine_writes_two_only_where_they_are_not_set():
    written = engine_writes({"NCCL_NVLS_ENABLE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    assert written == {
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
    }
