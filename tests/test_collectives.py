"""All-reduce is timed in an engine's Python, setting by setting; what fails is a result."""

from __future__ import annotations

import json
import os
import signal
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from configs.sweep import Level
from infra.agent import lease
from tasks.screen import Screen
from tests import sweeping
from tests.agent_host import AgentHost, until
from tests.torch_python import WHY_NOT, torch_python

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED: dict[str, Any] = {
    "world": 2,
    "dtype": "bfloat16",
    "elements": [64, 4096],
    "levels": [{"name": "default", "env": {}}, {"name": "other", "env": {"GLOO_NOTE": "1"}}],
    "passes": 1,
    "rounds": 4,
    "together": 2,
    "size_s": 0.005,
    "level_s": 120.0,
}


@pytest.fixture
def host(tmp_path):
    host = AgentHost(tmp_path)
    yield host
    host.clean_up()


@pytest.fixture
def trial(host):
    return host.trial()


@pytest.fixture
def python():
    found = torch_python()
    if found is None:
        pytest.skip(WHY_NOT)
    return found


def start(trial, python, **changed: Any) -> None:
    request = {**ASKED, **changed}
    trial.host.call(
        "start", dir=str(trial.path), name="s", job="collectives", request=request, python=python
    )


def result(trial, within_s: float = 200.0) -> Any:
    return until(lambda: trial.wait(None, job="s", timeout_s=0.2)["job"]["result"], within_s)


def test_without_torch_nothing_is_timed_and_it_says_so(trial, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {trial.host.python} -S -E "$@"\n')
    bare.chmod(0o755)
    start(trial, str(bare))
    said = result(trial)
    assert (said["ok"], said["available"], said["reason"]) == (True, False, "no_torch")
    assert "has no torch" in said["message"]


@pytest.mark.parametrize(
    "wrong", [{"world": 0}, {"elements": []}, {"levels": [{"name": "a"}]}, {"rounds": "many"}]
)
def test_a_wrong_request_is_refused_by_name(trial, wrong):
    start(trial, trial.host.python, **wrong)
    assert result(trial)["error"] == "bad_request"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_setting_is_timed_in_turn_at_every_size(trial, python):
    start(trial, python, elements=[64, 4_000_000])
    said = result(trial)
    assert said["ok"], said
    assert (said["available"], said["backend"], said["graphs"]) == (True, "gloo", False)
    assert said["torch"].startswith("2.")
    for level in said["levels"].values():
        assert level["error"] is None, level
        (rounds,) = level["passes"]
        assert len(rounds) == 4
        small, large = (statistics.median(times) for times in zip(*rounds, strict=True))
        assert 0 < 5 * small < large < 1e7


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_setting_that_fails_is_a_result_and_the_others_go_on(trial, python):
    # gloo refuses an interface that is not there, as NCCL refuses an algorithm that it lacks.
    broken = {"name": "broken", "env": {"GLOO_SOCKET_IFNAME": "no-such-interface"}}
    start(trial, python, levels=[*ASKED["levels"], broken], together=3)
    said = result(trial)
    assert said["levels"]["broken"]["error"] is not None
    assert "no-such-interface" in said["levels"]["broken"]["message"]
    assert said["levels"]["broken"]["passes"] == []
    assert len(said["levels"]["default"]["passes"][0]) == 4


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_rank_that_dies_ends_its_setting_alone(trial, python):
    start(trial, python, rounds=300)
    _measuring(trial)
    victim = until(lambda: _rank_of(trial, "0-1"))
    os.kill(victim, signal.SIGKILL)
    levels = result(trial)["levels"]
    assert levels["other"]["error"] is not None
    assert len(levels["other"]["passes"][0]) < 300
    assert levels["default"]["error"] is None
    assert len(levels["default"]["passes"][0]) == 300
    assert not _ranks(trial)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_lease_that_runs_out_ends_all_of_it(trial, python):
    start(trial, python, rounds=20_000, levels=ASKED["levels"][:1])
    _measuring(trial)
    lease.renew(str(trial.path), 0.0)
    assert result(trial)["error"] == "lease_expired"
    assert not _ranks(trial)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_whole_screen_is_timed_where_the_engines_python_has_torch(tmp_path, python):
    """From the command to screen.json; gloo takes none of NCCL's variables, so nothing is ranked."""
    with sweeping.ground(tmp_path) as ground:
        wrapper = Path(ground.ready.home) / "venv" / "bin" / "python-torch"
        wrapper.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        wrapper.chmod(0o755)
        ground.host_file(python="venv/bin/python-torch")
        asked = sweeping.sweep("timed", patches="")
        flags = {**asked.engine.flags, "tp-size": 2}
        levels = {"default": Level(), "ll": Level(env={"NCCL_PROTO": "LL"})}
        path = ground.sweep_file(
            asked.model_copy(
                update={
                    "engine": asked.engine.model_copy(update={"flags": flags}),
                    "factors": {"nccl": levels},
                }
            )
        )
        with ground.command("screen", str(path), "--no-start") as command:
            assert command.ended(300) == 0, command.text
        (run,) = ground.runs.runs("timed.screen")
        screen = Screen.model_validate_json((run.path / "screen.json").read_bytes())
        assert (screen.timed_by, screen.tp) == ("gloo", 2)
        # Two users; one, two or four tokens are looked at for each.
        assert screen.sizes.rows == (2, 4, 8)
        for level in screen.levels:
            assert level.error is None
            assert [time.rounds for time in level.times] == [16, 16, 16]
            for time in level.times:
                assert time.low_us is not None
                assert time.high_us is not None
                assert 0 < time.low_us <= time.median_us <= time.high_us
        assert (run.path / "screen.png").read_bytes().startswith(b"\x89PNG")
        assert "gloo ranks no NCCL setting" in command.text
        # Nobody saw a start: whether NCCL carries decode here is not known.
        assert screen.kept == ("default", "ll")
        assert ground.empty()


def _measuring(trial) -> None:
    """Waits until a few rounds are done."""
    progress = trial.path / "jobs" / "s" / "progress.json"
    until(lambda: progress.exists() and json.loads(progress.read_text())["done"] > 2, 170)


def _ranks(trial) -> list[int]:
    """Living processes that work in a folder of the job."""
    return [pid for pid, place in _places() if f"{trial.path}/jobs/s/" in place]


def _rank_of(trial, folder: str) -> int | None:
    mine = [pid for pid, place in _places() if place.endswith(f"/jobs/s/{folder}")]
    return mine[0] if mine else None


def _places() -> Iterator[tuple[int, str]]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield int(process.name), str((process / "cwd").readlink())
        except OSError:
            continue
