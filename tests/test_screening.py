"""What a sweep says of its screen is checked before anything is touched."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from configs.problems import ConfigError
from configs.read import parse_sweep, to_yaml
from configs.screening import Screening, without_levels
from flows.question import pose
from flows.screen import screening_question
from flows.screen_key import screen_key
from flows.screen_run import asked_screening
from flows.show_screen import screen_text
from tests import sweeping
from tests.sweeps import TEXT
from tests.test_screen_rank import GOOD, screen

if TYPE_CHECKING:
    from pathlib import Path

SCREEN = "screen: {factor: nccl, keep: 2, starts: [ll]}\n"


def refusals(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_sweep(text, "s.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_a_screen_is_read_and_written():
    sweep = parse_sweep(TEXT + SCREEN, "s.yaml")
    assert sweep.screen == Screening(factor="nccl", keep=2, starts=("ll",))
    assert parse_sweep(to_yaml(sweep), "again.yaml") == sweep


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("screen: {factor: attention}\n", "no factor is called 'attention': there are nccl"),
        ("screen: {factor: nccl, starts: [lll]}\n", "nccl has no level 'lll': name one of default"),
        ("screen: {factor: nccl, keep: 0}\n", "screen.keep"),
        ("screen: {factor: nccl, starts: some}\n", "screen.starts"),
        ("screen: {factor: nccl, kep: 2}\n", "did you mean keep?"),
    ],
)
def test_a_wrong_screen_is_named_with_what_would_be_right(text, said):
    assert any(said in one for one in refusals(TEXT + text))


def test_which_levels_are_started():
    levels = ("default", "ll", "tree")
    assert Screening(factor="nccl").starts_at(levels) == levels
    assert Screening(factor="nccl", starts="none").starts_at(levels) == ()
    assert Screening(factor="nccl", starts=("tree", "ll")).starts_at(levels) == ("ll", "tree")


def test_the_reference_always_stays():
    sweep = parse_sweep(TEXT, "s.yaml")
    left = without_levels(sweep, "nccl", {"default", "ll"})
    assert list(left.factors["nccl"]) == ["default"]


@pytest.fixture
def question(tmp_path: Path):
    sweep = parse_sweep(TEXT.replace("hosts: [box]", "hosts: [rehearsal]"), "s.yaml")
    return pose(sweep)


def test_a_screen_starts_the_baseline_once_under_each_level(question):
    posed = screening_question(question, Screening(factor="nccl"))
    assert [(t.arm, t.levels["nccl"], t.block) for t in posed.plan.trials] == [
        ("base", level, 1) for level in _order(question)
    ]
    assert posed.plan.sweep == "two-drafters.screen"


def _order(question) -> list[str]:
    return [t.levels["nccl"] for t in question.plan.trials if t.arm == "base" and t.block == 1]


def test_another_level_or_host_needs_another_screen(question):
    key = screen_key(question, "nccl")
    assert key == screen_key(question, "nccl")
    fewer = question._replace(sweep=without_levels(question.sweep, "nccl", {"ll"}))
    assert screen_key(fewer, "nccl") != key
    (host,) = question.hosts.values()
    moved = question._replace(hosts={"rehearsal": host.model_copy(update={"env": {"A": "1"}})})
    assert screen_key(moved, "nccl") != key
    keep = question.sweep.model_copy(update={"screen": Screening(factor="nccl", keep=1)})
    assert screen_key(question._replace(sweep=keep), "nccl") == key


def test_the_only_factor_need_not_be_named(question):
    assert asked_screening(question, None, starts=True).factor == "nccl"
    assert asked_screening(question, None, starts=False).starts == "none"
    with pytest.raises(ConfigError, match="no factor is called 'attention'"):
        asked_screening(question, "attention", starts=True)
    bare = question._replace(sweep=question.sweep.model_copy(update={"factors": {}}))
    with pytest.raises(ConfigError, match="which factor"):
        asked_screening(bare, None, starts=True)


def test_the_terminal_shows_times_and_ends_with_the_decision():
    console = Console(width=200, record=True, file=StringIO())
    console.print(screen_text(screen(GOOD)))
    lines = console.export_text().rstrip().splitlines()
    assert any(line.split()[:3] == ["ll", "9.00", "0.750"] for line in lines)
    assert lines[-1].startswith("default, ll, ll128, simple of nccl go into the plan")


@pytest.mark.slow
def test_the_command_screens_without_a_start_and_leaves_the_host_empty(tmp_path):
    with sweeping.ground(tmp_path) as ground:
        asked = sweeping.sweep("quick", patches="")
        factors = parse_sweep(TEXT, "s.yaml").factors
        asked = asked.model_copy(update={"factors": factors})
        ground.host_file()
        path = ground.sweep_file(asked)
        with ground.command("screen", str(path), "--no-start") as command:
            assert command.ended(120) == 0, command.text
        assert "has no torch: nothing was timed" in command.text
        (run,) = ground.runs.runs("quick.screen")
        assert json.loads((run.path / "screen.json").read_text())["timed_by"] == "nothing"
        assert ground.empty()
        with ground.command("screen", str(path), "--factor", "attention") as command:
            assert command.ended(120) == 2
        assert "no factor is called 'attention'" in command.text
        lost = asked.engine.model_copy(update={"model": "shared/none"})
        ground.sweep_file(asked.model_copy(update={"engine": lost}))
        with ground.command("screen", str(path)) as command:
            assert command.ended(120) == 1
        assert "shared/none/config.json is not there" in command.text
        assert "Traceback" not in command.text
