"""What people do in MLflow, on a real server: every search that the docs name, names, links, views."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flows import services
from infra import chart_view
from infra.services import QUIET, ensure, free_port, stop
from infra.store import Store, write_json, write_value
from infra.tracking import NOTE, Tracker
from tasks.publish import publish_missing
from tasks.reporting import write_report
from tests import builders
from tests.sweeps import sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.store import RunFolder
    from tasks.record import TrialRecord

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]
DOCS = Path(__file__).parent.parent / "docs" / "operate.md"
UI = "http://127.0.0.1:4200/runs/flow-run/0197a3f2-52cb-7c1e-9d60-3f1f5f0f8a11"
FLOW = {"id": UI.rpartition("/")[2], "url": UI, "began": "2026-03-01T21:59:00+00:00"}


def ladder(user_tok_s: float, accept_length: float) -> tuple[Any, ...]:
    return tuple(
        builders.measurement(
            concurrency=users, user_tok_s=user_tok_s / users**0.5, accept_length=accept_length
        )
        for users in (1, 8, 16, 64)
    )


def trials() -> list[TrialRecord]:
    """Two nights' worth of ends: ok, suspect, out of memory."""
    common = {
        "sweep": "rehearsal",
        "sweep_run": "rehearsal-0003-5c1f9e22",
        "effective": {"max-running-requests": "48"},
    }
    made = []
    for place, (arm, level, speed, accept) in enumerate(
        [
            ("base", "default", 60.0, 1.0),
            ("base", "ll", 61.0, 1.0),
            ("k25-tuned", "default", 90.0, 2.8),
            ("k25-tuned", "ll", 95.0, 2.8),
            ("worse", "default", 50.0, 1.6),
        ]
    ):
        fields = {"levels": {"nccl": level}, "order": place, **common}
        fields["fingerprint"] = "4be1a77c02d9e3f1" if place == 0 else f"{place}" * 16
        made.append(builders.record(arm, 1, ladder(speed, accept), **fields))
    looped = builders.finding(name="outputs_loop")
    made.append(
        builders.record(
            "looping", 1, ladder(99.0, 3.9), order=5, status="suspect", findings=(looped,), **common
        )
    )
    oom = builders.failure(failure_class="gpu_oom", message="CUDA out of memory")
    made.append(builders.record("big", 1, (), order=6, status="failed", failure=oom, **common))
    return made


def decided() -> list[TrialRecord]:
    """Four blocks in which one arm is a third faster."""
    found = []
    for block in range(1, 5):
        for arm, speed, accept in (("base", 60.0, 1.0), ("k25-tuned", 80.0, 2.8)):
            fields = {"sweep": "rehearsal", "sweep_run": "rehearsal-0003-5c1f9e22"}
            wobble = 1 + 0.002 * ((block + len(arm)) % 3)
            found.append(builders.record(arm, block, ladder(speed * wobble, accept), **fields))
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real MLflow server on SQLite, as `up` starts it."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("home")
    patch.setenv("EAGLE3_HOME", str(home))
    port = free_port(5055)
    url = f"http://127.0.0.1:{port}"
    try:
        ensure(services._mlflow(dict(QUIET), port, url), lambda _text: None)
        yield url
    finally:
        stop("mlflow", lambda _text: None)
        patch.undo()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    store = Store(tmp_path_factory.mktemp("runs"))
    *_earlier, folder = (store.new_run("rehearsal") for _number in range(3))
    write_json(folder.path / "run.json", {"id": folder.id, "uid": "5c1f9e22", "prefect": [FLOW]})
    for record in trials():
        write_value(folder.next_attempt(record.trial).record, record)
    return folder


@pytest.fixture(scope="module")
def published(server: str, run: RunFolder) -> Tracker:
    tracker = Tracker(server)
    assert publish_missing(run, tracker, print) == 0
    asked = sweep().model_copy(update={"name": "rehearsal"})
    report = write_report(run, asked, decided(), tracker, pytest.fail)
    assert report.mlflow_run
    return tracker


def recipes() -> dict[str, list[tuple[str, list[str]]]]:
    """Question -> each filter with the order that goes with it, from the table in the docs."""
    found = {}
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        codes = [double or single for double, single in re.findall(r"``(.+?)``|`(.+?)`", cells[-1])]
        if len(cells) == 2 and codes and re.match(r"(tags|metrics|params)\.", codes[0]):
            order = [code for code in codes if code.endswith((" DESC", " ASC"))]
            found[cells[0]] = [(code, order) for code in codes if code not in order]
    return found


EXPECTED = {
    "one run of a sweep, by its number": [7],
    "the best arm at 16 users": [5],
    "what failed, and of what": [1, 1],
    "what is suspect, and why": [1, 1],
    "all trials under one level": [1],
    "good acceptance": [3],
    "what the server really used": [7],
    "the same setting on the same host": [1],
    "what a Prefect run did": [7],
    "decisions (experiment `<sweep>/reports`)": [1],
}
"""How many runs of those above each filter finds."""


def search(tracker: Tracker, experiment: str, filter_string: str, order: list[str]) -> list[Any]:
    ids = [tracker.experiment(experiment)]
    return list(tracker.client.search_runs(ids, filter_string, order_by=order))


def test_every_search_that_the_docs_name_is_in_this_test():
    assert set(recipes()) == set(EXPECTED)


@pytest.mark.parametrize("question", list(EXPECTED))
def test_it_finds_what_it_promises(published: Tracker, question: str) -> None:
    place = "rehearsal/reports" if "reports" in question else "rehearsal"
    found = [len(search(published, place, words, order)) for words, order in recipes()[question]]
    assert found == EXPECTED[question]


def test_the_best_arm_is_first(published: Tracker) -> None:
    ((words, order),) = recipes()["the best arm at 16 users"]
    settings = [r.data.tags["setting"] for r in search(published, "rehearsal", words, order)]
    assert settings[:2] == ["k25-tuned+ll", "k25-tuned+default"]
    assert settings[-1] == "worse+default"


def test_names_sort_by_night_and_then_as_they_ran(published: Tracker) -> None:
    found = search(published, "rehearsal", "", ["attributes.run_name ASC"])
    names = [each.info.run_name for each in found]
    assert names[0] == "0003/0000 b01-base-default"
    assert [name[:9] for name in names] == [f"0003/{place:04d}" for place in range(7)]


def test_a_trial_and_the_experiment_lead_to_prefect_and_say_the_verdict(
    published: Tracker,
) -> None:
    (trial,) = search(published, "rehearsal", "tags.arm = 'worse'", [])
    assert trial.data.tags["prefect_flow_run"] == FLOW["id"]
    assert f"[Prefect run]({UI})" in trial.data.tags[NOTE]
    experiment = published.client.get_experiment_by_name("rehearsal")
    note = experiment.tags[NOTE]
    assert note.startswith("**Deploy k25-tuned: +33 % ")
    assert "\n\nWhich of two drafters pays?\n\n" in note
    assert f"[Prefect run]({UI})" in note
    assert f"[Charts]({published.chart_link('rehearsal')})" in note
    (report,) = search(published, "rehearsal/reports", "", [])
    assert f"/runs/{report.info.run_id})" in note
    assert report.data.tags[NOTE].startswith(f"**{report.data.tags['verdict'][:20]}")


def test_the_charts_that_open_first_hold_metrics_that_are_there(published: Tracker) -> None:
    tags = published.client.get_experiment_by_name("rehearsal").tags
    state = json.loads(tags[chart_view.TAG])
    runs = search(published, "rehearsal", state["searchFilter"], [])
    assert runs
    there = {name for each in runs for name in each.data.metrics}
    shown = [chart["metricKey"] for chart in state["compareRunCharts"]]
    assert shown[0] == "load/output_tok_s"
    assert set(shown) <= there


def test_a_view_of_very_many_probes_stays_within_what_mlflow_takes(published: Tracker) -> None:
    figures = ("output_tok_s", "user_tok_s", "accept_length")
    many = tuple(f"load-ctx{n}/{figure}" for figure in figures for n in range(40))
    published.show_first("many", "many-0001-aa", many)
    tags = published.client.get_experiment_by_name("many").tags
    charts = json.loads(tags[chart_view.TAG])["compareRunCharts"]
    assert [chart["metricKey"] for chart in charts] == list(many[: len(charts)])
    assert len(charts) >= 5
    published.describe("many", "x" * 9000)
    assert len(published.client.get_experiment_by_name("many").tags[NOTE]) == chart_view.LIMIT
