"""The script for the GPU machine tells what an engine does with a drafter, on the pretend host."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.rehearsal import weights
from tests import rehearsing
from tests.agent_host import until
from tests.gpu import broken_drafters as broken
from tests.gpu import try_drafters

SCRIPT = Path(try_drafters.__file__)
RECORDED = Path(__file__).parent / "fixtures" / "real" / "failures"
NOT_TOLD = {"drafter-missing-tensor", "drafter-no-config"}
"""The first was not asked anything in that run; the second ends before there is a drafter."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = rehearsing.build(tmp_path_factory.mktemp("host"))
    rehearsing.patch(folder)
    home = folder / "home"
    config, tensors = broken.good()
    broken.write(home / "good", config, tensors)
    names = broken.derive(config, tensors, home / "broken")
    for name in ("good", *(f"broken/{name}" for name in names)):
        (home / name / "rehearsal.json").write_text('{"accept_at": [0.7, 0.5, 0.3]}')
    text = {**weights.TARGET_CONFIG["text_config"], "hidden_size": config["hidden_size"]}
    target = {**weights.TARGET_CONFIG, "text_config": text}
    weights.write_model(home / "target", target, weights.target_tensors())
    return folder


@pytest.mark.long
def test_each_drafter_is_tried_and_held_against_the_prediction(host: Path) -> None:
    home = host / "home"
    tried = ["wrong-width", "missing-head", "no-config", "t2d-of-another", "eagle1-weights"]
    words = ["--python", str(home / "venv/bin/python"), "--target", "target", "--good", "good"]
    words += ["--broken", "broken", "--only", *tried, "--", "--tp-size", "8"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        check=False,
        cwd=home,
        env={"PATH": f"{host}/bin:{os.environ['PATH']}", "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert "good: works, accept length 2.4" in done.stdout, done.stdout + done.stderr
    rows = {row["drafter"]: row for row in json.loads((home / "tried/tried.json").read_text())}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "wrong-width": "dies_capturing",
        "missing-head": "accepts_nothing",
        "no-config": "dies_loading",
        "t2d-of-another": "works",
        # The pretend engine does not look at shapes of attention: a difference is told as one.
        "eagle1-weights": "works",
    }
    assert "4 of 5 as predicted" in done.stdout
    assert "eagle1-weights: works (NOT dies_loading)" in done.stdout
    assert done.returncode == 1


def living(group: int) -> list[str]:
    """The processes of a group that have not ended; one that nobody has reaped yet has."""
    fields = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields.append(file.read_text().rpartition(")")[2].split())
    return [state for state, _parent, member, *_ in fields if int(member) == group and state != "Z"]


@pytest.mark.long
def test_a_time_limit_leaves_no_server_behind(host: Path, tmp_path: Path) -> None:
    home = host / "home"
    words = ["--python", str(home / "venv/bin/python"), "--target", "target", "--good", "good"]
    words += ["--broken", "broken", "--out", str(tmp_path), "--", "--tp-size", "8"]
    script = subprocess.Popen(
        [sys.executable, str(SCRIPT), *words],
        cwd=home,
        env={"PATH": f"{host}/bin:{os.environ['PATH']}", "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    log = tmp_path / "good.log"
    until(lambda: log.exists() and log.stat().st_size > 0)
    (server,) = map(int, Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split())
    assert living(server)
    try:
        script.terminate()
        assert script.wait(60) == 128 + signal.SIGTERM
        until(lambda: not living(server))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server, signal.SIGKILL)


@pytest.mark.parametrize("one", [one for one in broken.BREAKS if one.seen not in {"", *NOT_TOLD}])
def test_predictions_agree_with_what_was_recorded(one: broken.Break) -> None:
    log = (RECORDED / f"{one.seen}.log").read_text(errors="replace")
    assert try_drafters.judge(log, None, None) == one.outcome


def test_accept_lengths_are_put_in_a_word() -> None:
    said = [try_drafters.judge("", length, 2.5) for length in (1.0, 1.1, 1.5, 2.45, 2.6)]
    assert said == ["accepts_nothing", "accepts_nothing", "accepts_less", "works", "works"]
