"""Two H200 as they are asked in tests/gpu: what is dropped before any trial, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from configs.plan import make_plan
from configs.read import parse_sweep
from flows.question import Question
from flows.screened import without_dropped
from tasks.nccl_log import read_nccl_log
from tasks.screen import LevelScreen, StartProof, kept_words
from tasks.screen_figure import screen_figure
from tasks.screen_made import Found, made_screen
from tasks.screen_report import decision, screen_page
from tasks.screen_sizes import Sizes
from tasks.screen_times import size_times

HERE = Path(__file__).parent
SIZES = Sizes(hidden=4096, dtype="bfloat16", rows=(1, 8, 32))
MICROSECONDS = {
    "default": (12.0, 14.0, 22.0),
    "ll": (9.0, 10.0, 18.0),
    "ll128": (11.0, 12.0, 17.0),
    "simple": (20.0, 22.0, 25.0),
    "one-connection": (12.0, 14.0, 22.0),
    "ib-hca": (12.0, 14.0, 22.0),
}
PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "SIMPLE"}


@pytest.fixture(scope="module")
def sweep():
    file = HERE / "gpu" / "configs" / "sweeps" / "h200-x2.yaml"
    return parse_sweep(file.read_text(), str(file))


def log_of(level: str):
    """A real log, with NCCL's choice at every size as it would say it."""
    name = "proto-LL" if level == "ll" else "nccl-default"
    lines = (HERE / "fixtures" / "nccl" / f"{name}.log").read_text().splitlines()
    protocol = PROTOCOLS.get(level, "SIMPLE" if level == "simple" else "LL128")
    lines += [
        f"vm:1:1 [0] NCCL INFO AllReduce: {size} Bytes -> Algo RING proto {protocol} "
        f"channel{{Lo..Hi}}={{0..{1 if level == 'default' else 3}}}"
        for size in SIZES.bytes
    ]
    if level in PROTOCOLS:
        lines.append(f"vm:1:1 [0] NCCL INFO NCCL_PROTO set by environment to {protocol}")
    if level == "ib-hca":
        lines.append("vm:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0")
    return read_nccl_log(lines)


def told(level: str) -> dict[str, Any]:
    base = MICROSECONDS[level]
    rounds = [[time * (1 + 0.002 * step) for time in base] for step in range(8)]
    return {"passes": [rounds, rounds]}


@pytest.fixture(scope="module")
def found(sweep):
    result = {
        "available": True,
        "torch": "2.11.0",
        "backend": "nccl",
        "graphs": True,
        "device": "NVIDIA H200",
        "nccl": "2.28.9",
    }
    levels = tuple(
        LevelScreen(
            level=name,
            env=dict(level.env),
            times=size_times(told(name), SIZES),
            nccl=log_of(name),
        )
        for name, level in sweep.factors["nccl"].items()
    )
    lines = [
        "server_args=ServerArgs(tp_size=2, disable_custom_all_reduce=False)",
        "[x TP0] Custom allreduce v2 initialized successfully",
    ]
    proof = StartProof(
        trial="b01-custom-one-connection.a1",
        status="started",
        nccl=log_of("default"),
        seen={"CUDA_DEVICE_MAX_CONNECTIONS": "8"},
    )
    return Found(
        sizes=SIZES,
        tp=2,
        result=result,
        levels=levels,
        starts={"one-connection": (proof, lines)},
        versions={"sglang": "0.5.12.post1"},
        host_env={"NCCL_NVLS_ENABLE": "0"},
    )


@pytest.fixture(scope="module")
def screen(sweep, found):
    made = made_screen(sweep, sweep.screen, found)
    return made.model_copy(
        update={
            "run": "h200-x2.screen-0001",
            "made_at": "2026-11-30T02:10:00+00:00",
            "host": "h200-x2",
            "host_class": "2x-h200",
        }
    )


def test_the_overwritten_and_the_useless_variable_are_named_before_launch(screen):
    named = {finding.where: finding.evidence for finding in screen.findings}
    assert "the engine's own processes have 8" in named["nccl=one-connection"]
    assert "InfiniBand, and all links are P2P/IPC" in named["nccl=ib-hca"]
    assert {"one-connection", "ib-hca"} <= set(screen.dropped)


def test_protocols_matter_only_where_nccl_reduces(screen):
    assert screen.level("ll").useless_in() == ("custom",)
    assert "v2 (JIT) up to 16 MiB" in screen.level("ll").effects["custom"][0].reason
    assert screen.paths["custom"].proven
    assert not screen.paths["nccl"].proven
    assert screen.level("ll").effects["nccl"][0].effect == "taken"


def test_what_is_slower_everywhere_goes_and_the_reference_stays(screen):
    assert screen.dropped["simple"] == "dominated by ll"
    assert screen.kept == ("default", "ll", "ll128")
    assert [name for name, _ in screen.ranking()][:2] == ["ll", "ll128"]


def test_the_sweep_then_has_eight_trials(sweep, screen, monkeypatch):
    plan = make_plan(sweep)
    question = Question(sweep, {}, (), {}, plan, ())
    monkeypatch.setattr(
        "flows.screened.pose",
        lambda reduced, _host: question._replace(sweep=reduced, plan=make_plan(reduced)),
    )
    left = without_dropped(question, screen, sweep.screen)
    settings = {(trial.arm, trial.levels["nccl"]) for trial in left.plan.trials}
    assert settings == {
        ("custom", "default"),
        ("nccl", "default"),
        ("nccl", "ll"),
        ("nccl", "ll128"),
    }
    assert len(left.plan.trials) == 8
    assert [trial.order for trial in left.plan.trials] == list(range(8))
    assert left.plan.digest != make_plan(left.sweep).digest
    assert any("nccl=ll is left out in custom" in words for words in left.warnings)


def test_the_page_leads_with_the_decision(screen):
    page = screen_page(screen, figure=True)
    assert page.startswith("# Screen of nccl, h200-x2\n\n**default, ll, ll128 of nccl go into the")
    assert "ll takes 0.76 x the time of default over all sizes" in decision(screen)
    for text in (
        "8 KiB to 256 KiB",
        "| simple |",
        "left out | dominated by ll",
        "SGLang's custom all-reduce v2 (JIT)",
        "proven by its start",
        "told from its flags",
        "factor_without_effect",
        "the times are of NCCL's path alone, which decode does not take in custom",
    ):
        assert text in page, text


def test_the_figure_is_the_same_for_the_same_screen(screen):
    figure = screen_figure(screen)
    assert figure is not None
    assert figure.startswith(b"\x89PNG")
    assert figure == screen_figure(screen)
    bare = screen.model_copy(
        update={"levels": tuple(o.model_copy(update={"times": ()}) for o in screen.levels)}
    )
    assert screen_figure(bare) is None


def test_a_screen_survives_its_file(screen):
    again = type(screen).model_validate_json(screen.model_dump_json())
    assert again == screen
    assert json.loads(screen.model_dump_json())["schema_version"] == 1
    assert kept_words(screen)[0].endswith("nccl keeps default, ll, ll128")


def test_with_gloo_nothing_is_ranked(sweep, found):
    result = {**found.result, "backend": "gloo", "graphs": False, "device": "cpu"}
    screen = made_screen(sweep, sweep.screen, found._replace(result=result))
    assert screen.timed_by == "gloo"
    assert "simple" in screen.kept
    assert "gloo ranks no NCCL setting" in screen.notes[0]


def test_what_stops_the_reference_drops_no_level(sweep, found):
    broken = tuple(
        one.model_copy(update={"times": (), "error": "capture failed"}) for one in found.levels
    )
    screen = made_screen(sweep, sweep.screen, found._replace(levels=broken))
    assert screen.timed_by == "nothing"
    assert screen.timed_note == "default itself could not be timed: capture failed"
    assert set(screen.dropped) == {"one-connection", "ib-hca"}


def test_without_a_start_nothing_is_called_useless_that_rests_on_the_machine(sweep, found):
    """On a PCIe box custom all-reduce switches itself off: only a start tells."""
    screen = made_screen(sweep, sweep.screen, found._replace(starts={}))
    path = screen.paths["custom"]
    assert (path.proven, path.sure) == (False, False)
    assert screen.paths["nccl"].sure
    (ll,) = screen.level("ll").effects["custom"]
    assert ll.effect == "not_seen"
    assert "a start would tell" in ll.reason
    assert screen.level("ll").useless_in() == ()
    assert set(screen.dropped) >= {"one-connection", "ib-hca"}
    assert "told from its flags alone, so not certain" in screen_page(screen, figure=False)


def test_a_baseline_without_custom_all_reduce_says_nothing_of_one_with_it(sweep, found):
    proof, _ = found.starts["one-connection"]
    lines = ["server_args=ServerArgs(tp_size=2, disable_custom_all_reduce=True)"]
    turned = sweep.model_copy(update={"baseline": "nccl"})
    screen = made_screen(turned, sweep.screen, found._replace(starts={"default": (proof, lines)}))
    assert (screen.paths["nccl"].proven, screen.paths["nccl"].sure) == (True, True)
    assert not screen.paths["custom"].sure
