"""A screen end to end on the pretend host: what each level changes, and what the plan becomes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from configs.screening import Screening
from configs.sweep import Arm, Level
from flows.conduct import Conductor
from flows.outcome import Hands
from flows.question import pose
from flows.runs import open_run
from flows.screen_run import make_screen, screened_first
from flows.screened import screened
from flows.stages import PlainRunner
from infra.connect import connect
from tests import sweeping

if TYPE_CHECKING:
    from tasks.screen import Screen

LEVELS = {
    "default": Level(),
    "ll": Level(env={"NCCL_PROTO": "LL"}),
    "simple": Level(env={"NCCL_PROTO": "Simple"}),
    "one-connection": Level(env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    "ib": Level(env={"NCCL_IB_HCA": "mlx5_0"}),
    "tree": Level(env={"NCCL_ALGO": "Tree"}),
}

pytestmark = pytest.mark.slow


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    with sweeping.ground(tmp_path_factory.mktemp("screen")) as ground:
        yield ground


@pytest.fixture(scope="module")
def sweep():
    asked = sweeping.sweep("screened", patches="")
    screen = Screening(factor="nccl", keep=3)
    return asked.model_copy(update={"factors": {"nccl": LEVELS}, "screen": screen})


@pytest.fixture(scope="module")
def question(ground, sweep):
    return pose(sweep, str(ground.host_file()))


@pytest.fixture(scope="module")
def hands(ground):
    return Hands(
        connect=lambda spec: connect(spec, patience_s=20, note=ground.said.append),
        runner=lambda trial: PlainRunner(ground.said.append),
        tracker=None,
        say=ground.said.append,
    )


@pytest.fixture(scope="module")
def screen(ground, question, hands):
    return make_screen(question, question.sweep.screen, ground.runs, hands)


def effect(screen: Screen, level: str) -> tuple[str, str]:
    (found,) = screen.level(level).effects["base"]
    return found.effect, found.reason


def test_without_torch_it_says_that_nothing_was_timed_and_proves_all_the_same(screen):
    assert screen.timed_by == "nothing"
    assert "has no torch" in screen.timed_note
    assert screen.level("default").start.status == "started"
    assert screen.level("default").start.nccl.links == {"P2P/IPC": 16}


def test_decode_goes_through_nccl_as_the_engine_says(screen):
    path = screen.paths["base"]
    assert path.proven
    assert [step.kind for step in path.steps] == ["nccl"]
    assert "more than two PCIe-only GPUs" in path.steps[0].why


def test_each_level_is_proven_by_a_start_of_its_own(screen):
    assert effect(screen, "ll") == ("taken", "NCCL says: set to LL")
    assert effect(screen, "one-connection") == (
        "overwritten",
        "the engine's own processes have 8",
    )
    what, why = effect(screen, "ib")
    assert what == "cannot_matter"
    assert "InfiniBand, and all links are P2P/IPC" in why
    what, why = effect(screen, "simple")
    assert what == "cannot_matter"
    assert "RING SIMPLE at every size of decode, as it does by itself" in why


def test_a_level_that_does_not_start_is_a_result_in_ncclss_words(screen):
    start = screen.level("tree").start
    assert (start.status, start.failure_class) == ("failed", "nccl_error")
    assert "no algorithm/protocol available for function AllGather" in start.message
    assert "does not start" in screen.dropped["tree"]


def test_levels_without_effect_are_named_and_dropped_the_reference_never(screen):
    assert screen.kept == ("default", "ll")
    named = {finding.where for finding in screen.findings}
    assert named == {"nccl=simple", "nccl=one-connection", "nccl=ib"}
    assert {finding.name for finding in screen.findings} == {"factor_without_effect"}


def test_the_run_folder_holds_values_page_and_the_starts(screen, ground):
    (run,) = ground.runs.runs("screened.screen")
    assert json.loads((run.path / "screen.json").read_text())["kept"] == ["default", "ll"]
    page = (run.path / "screen.md").read_text()
    assert "> **REHEARSAL" in page
    assert "factor_without_effect" in page
    texts = list(run.path.glob("trials/*-ll.a1/nccl/start/nccl.*.txt"))
    assert len(texts) == 8
    assert ground.empty()


def test_plan_says_what_the_screen_leaves_out_and_touches_nothing(screen, ground, question):
    host = str(ground.host_file())
    left = screened(question, ground.runs, host=host)
    assert list(left.sweep.factors["nccl"]) == ["default", "ll"]
    older = question._replace(
        sweep=question.sweep.model_copy(update={"arms": {**question.sweep.arms, "b": Arm()}})
    )
    assert "would be screened first" in screened(older, ground.runs, host=host).warnings[-1]


def test_a_sweep_that_does_not_ask_for_it_loses_nothing(screen, ground, question):
    asked = question._replace(sweep=question.sweep.model_copy(update={"screen": None}))
    left = screened(asked, ground.runs)
    assert left.plan == asked.plan
    assert left.screen == screen


def test_run_uses_the_latest_screen_that_fits_and_says_what_is_left_out(
    screen, ground, question, hands
):
    left = screened_first(question, ground.runs, hands, host=str(ground.host_file()))
    assert len(ground.runs.runs("screened.screen")) == 1
    assert list(left.sweep.factors["nccl"]) == ["default", "ll"]
    assert [trial.levels["nccl"] for trial in left.plan.trials].count("ll") == 1
    assert len(left.plan.trials) == 2
    assert any("nccl=ib is left out: cannot matter in any arm" in w for w in left.warnings)
    with open_run(ground.runs, left) as run:
        outcome = Conductor(left, run, hands).conduct()
    assert all("keeps default, ll" in record.notes[0] for record in outcome.records)
    assert "## Screen" in outcome.report.markdown
    assert "nccl=tree is left out" in outcome.report.markdown
    assert (run.path / "screen.json").exists()
