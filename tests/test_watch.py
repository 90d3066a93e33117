"""A run is watched from beside: from its folder alone, in a terminal of 80 columns."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flows.cli import app
from flows.done import Done, done_line, done_of
from flows.noting import NotingRunner
from flows.question import pose
from flows.runs import open_run
from flows.show_watch import view_text
from flows.stages import PlainRunner
from flows.watch import watch
from flows.watched import Doing, View, Watched
from infra.store import Store, read_json, write_text
from tasks.live import Live, LiveLog
from tests import sweeping
from tests.agent_host import until
from tests.builders import failure, measurement, record

REAL = Path(__file__).parent / "fixtures"


def printed(view: View, height: int = 24, gpus: dict[str, Any] | None = None) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as caught:
        console.print(view_text(view, height, gpus or {}))
    return caught.get()


def view(**changed: Any) -> View:
    known = View("night-0001", "Does it pay?", 3, (), (), ("b01-base", "b01-a"), 7, None)
    return known._replace(**changed)


def doing(at: str, text: str = "", host: str = "box", **live: Any) -> tuple[Doing, ...]:
    log = Live("serving", None, 1234.5, 2.51, 8)._replace(**live)
    return (Doing("b01-aq-medai-with-a-very-long-name-k3", host, at, text, 61.0, log),)


def test_a_load_shows_its_stage_and_percent_and_no_old_figures():
    text = printed(view(doing=doing("wait_ready", stage="target_weights", percent=40)))
    assert "████████░░░░░░░░░░░░ 40 % target_weights" in text
    assert "1,234.5" not in text


def test_a_probe_shows_the_engine_s_own_speed_and_acceptance():
    text = printed(view(doing=doing("probe:load", "c8 12/64 requests")))
    assert "1,234.5   2.51" in text
    assert "c8 12/64 requests; 8 running" in text


def test_no_line_is_wider_than_eighty_columns_nor_the_page_higher_than_the_terminal():
    done = tuple(
        Done(
            f"b{n:02d}-aq-medai-steps-3-topk-4",
            "suspect",
            "looping_outputs, " * 9,
            8,
            1e5,
            3.2,
            4e3,
        )
        for n in range(200)
    )
    full = view(planned=400, done=done, doing=doing("probe:load", "x" * 200), left_s=123_456.0)
    lines = printed(full, 24, {"box": "8 GPUs: 120 to 139 GiB, 610 W"}).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert any("before)" in line for line in lines)
    assert "200 of 400 trials: 200 suspect; about 34 h 18 min left" in lines[1]


def test_a_trial_that_is_over_is_a_line_with_its_figures():
    fast = measurement(concurrency=64, output_tok_s=2094.4, accept_length=2.614)
    good = record("tuned", measurements=(measurement(), fast))
    assert done_line(done_of(good)) == (
        "b01-tuned: ok, 2,094.4 tokens/s at 64 users, accept length 2.61, 20 min"
    )
    alone = record("base", measurements=(measurement(concurrency=1, output_tok_s=63.6),))
    assert done_line(done_of(alone)) == "b01-base: ok, 63.6 tokens/s at 1 user, 20 min"
    known = failure(stage="launch", failure_class="gpu_oom")
    bad = record("tuned", measurements=(), status="failed", failure=known)
    assert done_line(done_of(bad)) == "b01-tuned: failed (launch: gpu_oom), 20 min"


def test_each_of_several_hosts_has_its_row_and_its_line():
    four = tuple(doing("probe:load", f"c8 {n}/64 requests", f"host-{n}")[0] for n in range(4))
    cards = {one.host: "8 GPUs: 120 GiB, 610 W" for one in four}
    full = view(planned=400, doing=four, waiting=tuple(f"b{n:02d}-base" for n in range(99)))
    lines = printed(full, 24, cards).splitlines()
    assert len(lines) <= 24
    assert [f"probe:load on host-{n} " in "\n".join(lines) for n in range(4)] == [True] * 4
    assert "host-2: c8 2/64 requests; 8 running" in lines
    assert "host-3: 8 GPUs: 120 GiB, 610 W" in lines


def test_a_run_that_nobody_works_on_says_so():
    assert "nobody works on it here" in printed(view(conductor=None))
    over = view(
        planned=1, waiting=(), conductor=None, done=(Done("b", "ok", "", 1, 1.0, 1.0, 5.0),)
    )
    assert "1 of 1 trials: 1 ok" in printed(over)
    assert "nobody" not in printed(over)


def test_a_real_log_cut_anywhere_gives_the_last_figures():
    log = (REAL / "real" / "eagle3-good.log").read_bytes()
    whole, pieces = LiveLog("sglang"), LiveLog("sglang")
    whole.feed(log)
    for at in range(0, len(log), 997):
        pieces.feed(log[at : at + 997])
    assert pieces.now() == whole.now()
    assert whole.now().stage == "stopping"
    assert whole.now().tok_s is not None
    assert whole.now().accept_length is not None


def test_ranks_and_engines_are_added_up():
    log = LiveLog()
    for rank, speed in ((0, 100.0), (1, 50.0)):
        log.feed(
            f"[2026-05-20 10:00:00 DP{rank} TP0] Decode batch, #running-req: 4, #token: 9, "
            f"token usage: 0.01, accept len: {2 + rank}.00, accept rate: 0.5, cuda graph: True, "
            f"gen throughput (token/s): {speed}, #queue-req: 0\n".encode()
        )
    assert log.now()[2:] == (150.0, 2.5, 8)


def test_what_a_trial_does_is_noted_while_it_does_it(tmp_path):
    keep = Store(tmp_path).new_run("night").next_attempt("b01-base")
    said: list[str] = []
    runner = NotingRunner(PlainRunner(said.append), keep)
    seen = runner.run("probe:load", lambda: read_json(keep.now))
    assert seen["stage"] == "probe:load"
    assert [stage.name for stage in runner.times] == ["probe:load"]
    runner.say("first")
    assert said == ["probe:load: first"]


def test_a_note_that_cannot_be_written_ends_nothing(tmp_path):
    keep = Store(tmp_path).new_run("night").next_attempt("b01-base")
    keep.now.mkdir()  # no file goes there
    assert NotingRunner(PlainRunner(lambda _text: None), keep).run("launch", lambda: 5) == 5


@pytest.fixture
def run(tmp_path):
    asked = sweeping.sweep("night", arms="base+tuned", patches="", blocks=2)
    question = pose(asked, "rehearsal")
    with open_run(Store(tmp_path / "runs"), question) as made:
        yield made


def test_a_folder_is_looked_at_again_and_again(run):
    watched = Watched(run)
    first = watched.look()
    assert (first.planned, first.done, first.doing, first.left_s) == (4, (), (), None)
    assert first.conductor == os.getpid()
    trial = first.waiting[0]
    keep = run.next_attempt(trial)
    NotingRunner(PlainRunner(lambda _text: None), keep).run("launch", lambda: None)
    now = watched.look()
    assert [(one.trial, one.stage) for one in now.doing] == [(trial, "launch")]
    assert trial not in now.waiting
    made = record("base", 1, (measurement(concurrency=1), measurement(concurrency=8)))
    made = made.model_copy(
        update={
            "trial": trial,
            "started_at": "2026-11-01T00:00:00+00:00",
            "ended_at": "2026-11-01T00:06:00+00:00",
        }
    )
    write_text(keep.record, made.model_dump_json())
    over = watched.look()
    assert over.doing == ()
    assert over.done[0].seconds == 360.0
    assert over.done[0].tok_s == made.measurements[1].output_tok_s
    assert over.left_s == 3 * 360.0


def test_a_sweep_without_a_run_is_a_mistake_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGLE3_HOME", str(tmp_path))
    said = CliRunner().invoke(app, ["watch", "none"])
    assert said.exit_code == 2
    assert "`eagle3-sweep run none` makes one" in said.stderr


def test_a_run_that_is_just_being_made_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGLE3_HOME", str(tmp_path))
    (tmp_path / "runs" / "new" / "0001").mkdir(parents=True)
    said = CliRunner().invoke(app, ["watch", "new"])
    assert said.exit_code == 2
    assert "new-0001 is just being made" in said.stderr


def test_a_run_that_was_asked_for_a_moment_ago_is_waited_for(tmp_path, monkeypatch):
    """Prefect's worker takes seconds to begin; until then the latest run is the one before."""
    monkeypatch.setenv("EAGLE3_HOME", str(tmp_path))
    out = io.StringIO()
    monkeypatch.setattr("flows.watch.console", Console(file=out, force_terminal=True, width=80))
    monkeypatch.setattr("flows.watch._PAUSE_S", 0.01)
    question = pose(sweeping.sweep("night", arms="base", patches=""), "rehearsal")

    def end(folder) -> None:
        made = record("base", 1).model_copy(update={"trial": question.plan.trials[0].id})
        write_text(folder.next_attempt(made.trial).record, made.model_dump_json())

    with open_run(Store(tmp_path / "runs"), question) as before:
        end(before)
    watching = threading.Thread(target=lambda: watch("night", run_number=None))
    watching.start()
    until(lambda: "Waiting a minute for a run to begin" in out.getvalue())
    with open_run(Store(tmp_path / "runs"), question, fresh=True) as now:
        until(lambda: "night-0002" in out.getvalue())
        assert watching.is_alive()
        end(now)
        watching.join(30)
    assert not watching.is_alive()
    assert out.getvalue().rstrip().rfind("Waiting") < out.getvalue().rfind("night-0002")


def test_a_run_that_is_named_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGLE3_HOME", str(tmp_path))
    out = io.StringIO()
    monkeypatch.setattr("flows.watch.console", Console(file=out, force_terminal=True, width=80))
    question = pose(sweeping.sweep("night", arms="base", patches=""), "rehearsal")
    with open_run(Store(tmp_path / "runs"), question) as run:
        told = read_json(run.path / "run.json")
    write_text(run.path / "run.json", json.dumps({**told, "pid": None}))
    watch("night", run_number=1)
    assert "nobody works on it here" in out.getvalue()
    assert "Waiting" not in out.getvalue()


def test_ctrl_c_ends_the_watching_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGLE3_HOME", str(tmp_path))
    out = io.StringIO()
    monkeypatch.setattr("flows.watch.console", Console(file=out, force_terminal=True, width=80))
    monkeypatch.setattr("flows.watch._PAUSE_S", 60.0)
    question = pose(sweeping.sweep("night", arms="base", patches=""), "rehearsal")

    def interrupt() -> None:
        until(lambda: "0 of 1 trials" in out.getvalue())
        os.kill(os.getpid(), signal.SIGINT)

    somebody = threading.Thread(target=interrupt)
    # Whoever is started in the background has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with open_run(Store(tmp_path / "runs"), question):
            somebody.start()
            watch("night")
    finally:
        signal.signal(signal.SIGINT, before)
    somebody.join()


def test_a_real_sweep_is_watched_while_it_probes(tmp_path):
    with sweeping.ground(tmp_path) as ground:
        ground.host_file()
        asked = sweeping.sweep(
            "seen", arms="base", patches="", tokens=128, per_slot=900
        )  # stopped below
        with ground.command("run", str(ground.sweep_file(asked))) as command:
            command.reaches(lambda: probing(ground.runs.latest("seen")))
            with ground.command("watch", "seen", "--gpus") as watching:
                assert watching.ended() == 0, watching.text
                assert "b01-base" in watching.text
                assert "probe:load" in watching.text
                assert "8 GPUs: " in watching.text
            command.signal(signal.SIGTERM)
            assert command.ended(60) == 130


def probing(run) -> bool:
    return run is not None and any(
        read_json(f.now).get("stage") == "probe:load" for f in run.trials()
    )
