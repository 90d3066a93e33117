"""Drafters of a folder, here and on a host: good ones pass, broken ones are named before a launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infra.agent import content
from infra.local_files import LocalFiles
from tasks.drafter_verdict import EngineFacts, TargetFacts
from tasks.inspection import EXIT_CODES, inspect_folder, inspection_text, target_facts
from tests import sweeping
from tests.gpu import broken_drafters as broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.inspection import Inspection
    from tests.sweeping import Ground

FILES = LocalFiles()
ENGINE = EngineFacts(framework="sglang", version="0.5.12.post1")
BREAKS = {one.name: one for one in broken.BREAKS}
OUTCOMES = {"dies_loading", "dies_capturing", "dies_drafting"}
OUTCOMES |= {"accepts_nothing", "accepts_less", "works"}
RECORDED = Path(__file__).parent / "fixtures" / "real" / "failures"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good drafter, its target, and all that can be broken of it."""
    place = tmp_path_factory.mktemp("drafters")
    config, tensors = broken.good()
    broken.write(place / "good", config, tensors)
    broken.write(place / "target", broken.target_config(config), {})
    broken.derive(*broken.read(place / "good"), place / "broken")
    return place


def look(folder: Path, name: str, engine: EngineFacts = ENGINE) -> Inspection:
    found = inspect_folder(
        FILES, str(folder / name), target_facts(FILES, str(folder / "target")), engine
    )
    assert found is not None
    return found


def test_the_drafter_that_all_are_derived_from_is_ok(folder: Path) -> None:
    found = look(folder, "good")
    assert (found.result, found.verdict.problems, found.verdict.warnings) == ("ok", (), ())
    assert found.verdict.capture_layers == (2, 12, 21)
    assert found.verdict.head == "own"


@pytest.mark.parametrize("name", BREAKS)
def test_each_broken_drafter_is_named_before_a_launch(folder: Path, name: str) -> None:
    one, found = BREAKS[name], look(folder, f"broken/{name}")
    if one.reason is None:
        assert found.result == "findings"
        assert any(one.finding in warning for warning in found.verdict.warnings)
    else:
        assert found.result == "refuse"
        assert found.verdict.reason == one.reason
        assert found.verdict.remedy, "what to do is said"


def test_a_file_that_was_cut_off_is_named_too(folder: Path) -> None:
    found = look(folder, f"broken/{broken.CUT_OFF}")
    assert found.verdict.reason == "weights_unreadable"
    assert "cut off" in found.verdict.problems[0].message


def test_what_the_engine_does_with_each_is_predicted() -> None:
    for one in broken.BREAKS:
        assert one.outcome in OUTCOMES, one.name
        assert one.predicted, one.name
        assert not one.seen or (RECORDED / f"{one.seen}.log").exists(), one.seen
    docs = (Path(__file__).parents[1] / "docs" / "drafters.md").read_text()
    assert broken.table() in docs, "python3 tests/gpu/broken_drafters.py --table"


def test_a_checkpoint_in_parts_is_read_as_the_engine_reads_it(folder: Path, tmp_path: Path) -> None:
    config, tensors = broken.read(folder / "good")
    parts = [dict(list(tensors.items())[:5]), dict(list(tensors.items())[5:])]
    index: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        broken.write(tmp_path / "good", config, part)
        name = f"model-0000{number}-of-00002.safetensors"
        (tmp_path / "good" / "model.safetensors").rename(tmp_path / "good" / name)
        index |= dict.fromkeys(part, name)
    file = tmp_path / "good" / "model.safetensors.index.json"
    file.write_text(json.dumps({"weight_map": index}))
    (tmp_path / "target").symlink_to(folder / "target")
    whole = look(tmp_path, "good")
    assert whole.result == "ok"
    assert whole.verdict.weights_sha256 == look(folder, "good").verdict.weights_sha256

    (tmp_path / "good" / "model-00001-of-00002.safetensors").unlink()
    half = look(tmp_path, "good")
    assert half.result == "refuse"
    assert any("the folder lacks" in warning for warning in half.verdict.warnings)


def test_weights_in_torchs_own_format_are_not_judged(folder: Path, tmp_path: Path) -> None:
    config, _ = broken.read(folder / "good")
    broken.write(tmp_path / "good", config, {})
    (tmp_path / "good" / "pytorch_model.bin").write_bytes(b"PK")
    (tmp_path / "target").symlink_to(folder / "target")
    found = look(tmp_path, "good")
    assert found.result == "ok"
    assert found.verdict.weights_sha256 is None


def test_a_number_type_that_the_target_does_not_share_is_refused(folder: Path) -> None:
    name = "broken/no-dtype"
    (problem,) = look(folder, name).verdict.problems
    assert problem.reason == "dtype_mismatch"
    assert (
        "absent: SGLang loads the drafter as float16 and the target as bfloat16" in problem.message
    )
    assert problem.hint is not None
    assert '"dtype": "bfloat16"' in problem.hint
    forced = ENGINE.model_copy(update={"dtype": "bfloat16"})
    assert look(folder, name, forced).result == "ok"


def test_a_draft_model_of_its_own_may_have_another_number_type(folder: Path) -> None:
    alone = ENGINE.model_copy(update={"speculative_algorithm": "STANDALONE"})
    assert "dtype_mismatch" not in {
        problem.reason for problem in look(folder, "broken/no-dtype", alone).verdict.problems
    }


def test_the_identity_is_that_of_the_fingerprint_and_changes_with_the_content(
    folder: Path, tmp_path: Path
) -> None:
    config, tensors = broken.read(folder / "good")
    assert look(folder, "good").identity == content.digest(str(folder / "good"))
    broken.write(tmp_path / "good", config, tensors)
    (tmp_path / "target").symlink_to(folder / "target")
    assert look(tmp_path, "good").identity == look(folder, "good").identity
    norm = tensors["norm.weight"]
    trained = {**tensors, "norm.weight": norm._replace(data=b"\x01" * len(norm.data))}
    broken.write(tmp_path / "good", config, trained)
    other = look(tmp_path, "good")
    assert other.identity != look(folder, "good").identity
    assert other.verdict.weights_sha256 == look(folder, "good").verdict.weights_sha256


def test_the_text_leads_with_the_word_and_says_what_to_do(folder: Path) -> None:
    target = target_facts(FILES, str(folder / "target"))
    text = inspection_text("/d", look(folder, "broken/missing-head"), target, ENGINE)
    lines = text.splitlines()
    assert lines[0] == "refuse: /d"
    assert lines[1].startswith("  lm_head_missing_in_weights: no lm_head.weight")
    assert lines[2].startswith("    what to do: ")
    assert "  head          none: it stays random" in lines
    assert "  target        LlamaForCausalLM, 24 layers, hidden size 64" in text
    bare = inspection_text(
        "/d", look(folder, "good"), TargetFacts(), EngineFacts(framework="sglang")
    )
    assert "not given: nothing was held against one" in bare


def command(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from flows.cli import main; main()", "inspect", *words],
        check=False,
        cwd=place,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["good", "--target", "target", "--version", "0.5.12"], EXIT_CODES["ok"], "ok: good"),
        (["broken/missing-aux-layers"], EXIT_CODES["findings"], "default layers will be used"),
        (["broken/missing-head", "--target", "target"], EXIT_CODES["refuse"], "stays random"),
        (["nowhere"], 2, "inspect: PATH: no such folder: nowhere"),
        (["good", "--target", "nowhere"], 2, "inspect: --target: no such folder: nowhere"),
        (["good", "--version", "newest"], 2, "write one such as 0.5.9"),
        (["good", "--algorithm", "eagle4"], 2, "EAGLE4: one of EAGLE3"),
    ],
)
def test_the_command_ends_with_the_code_of_its_result(
    folder: Path, words: list[str], code: int, text: str
) -> None:
    done = command(folder, *words)
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("inspect")) as made:
        yield made


def test_a_folder_on_a_host_is_read_there_with_that_hosts_release(ground: Ground) -> None:
    words = ["data/eagle3/k25-tuned", "--target", "shared/kimi-k2.5-int4"]
    words += ["--host", str(ground.host_file())]
    done = command(ground.place, *words)
    assert done.returncode == EXIT_CODES["findings"], done.stdout + done.stderr
    assert done.stdout.startswith(f"findings: {ground.ready.home}/data/eagle3/k25-tuned\n")
    assert "sglang 0.5.9, EAGLE3" in done.stdout
    assert "SGLang before 0.5.13 shifts ids" in done.stdout
    here = content.digest(f"{ground.ready.home}/data/eagle3/k25-tuned")
    assert f"identity      {here}" in done.stdout
    newer = command(ground.place, *words, "--version", "0.5.23")
    assert newer.returncode == EXIT_CODES["ok"], newer.stdout + newer.stderr


def test_a_trials_record_says_which_content_it_measured(ground: Ground) -> None:
    record = ground.trial(sweeping.sweep("which", arms="tuned")).record
    home = ground.ready.home
    expected = {
        "target": content.digest(f"{home}/shared/kimi-k2.5-int4"),
        "drafter": content.digest(f"{home}/data/eagle3/k25-tuned"),
    }
    assert record.models == expected
    assert expected["target"] in record.must_match.values()


@pytest.mark.long
def test_a_drafter_of_other_content_is_measured_anew(ground: Ground) -> None:
    asked = sweeping.sweep("anew", arms="tuned")
    first = ground.run(asked, fresh=True).records[0]
    assert [skip.trial for skip in ground.run(asked).skipped] == [first.trial]
    config = Path(ground.ready.home) / "data/eagle3/k25-tuned/config.json"
    before = config.read_text()
    try:
        changed: dict[str, Any] = json.loads(before) | {"rms_norm_eps": 1e-6}
        config.write_text(json.dumps(changed))
        again = ground.run(asked)
    finally:
        config.write_text(before)
    assert again.skipped == ()
    (record,) = again.records
    assert record.attempt > first.attempt
    assert record.models["drafter"] != first.models["drafter"]
    assert record.fingerprint != first.fingerprint


def test_a_broken_drafter_fails_its_trial_before_the_launch(ground: Ground) -> None:
    home = Path(ground.ready.home) / "data/eagle3"
    bare = home / "no-weights"
    bare.mkdir()
    (bare / "config.json").write_text((home / "k25-tuned" / "config.json").read_text())
    asked = sweeping.sweep("bare", arms="tuned")
    arm = asked.arms["tuned"]
    speculation = arm.speculation.model_copy(update={"drafter": "data/eagle3/no-weights"})
    arm = arm.model_copy(update={"speculation": speculation})
    record = ground.trial(asked.model_copy(update={"arms": {"tuned": arm}})).record
    assert record.failure is not None
    assert record.failure.stage == "check_drafter"
    assert record.failure.failure_class == "drafter_refused"
    assert "weights_missing" in record.failure.message
    assert "launch" not in [stage.name for stage in record.stages]
