"""A sweep over unlike hosts: one comparison for each class, and one sentence that names them all."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest
from rich.console import Console

from configs.host_classes import unlike_hosts
from configs.plan import make_plan
from configs.problems import ConfigError
from configs.read import read_host
from flows.exporting import _one_class
from flows.show import verdicts_text
from infra.store import RunFolder, write_text
from infra.tracking import Tracker
from tasks.comparable import by_host_class
from tasks.decision import decision_of, decision_sentence
from tasks.reporting import compare_classes, compare_sweep, strata_of, write_report
from tasks.stopping import enough_everywhere, enough_known
from tests.builders import failure
from tests.hosting import pool
from tests.scripted_mlflow import ScriptedMlflow
from tests.sweeps import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.record import TrialRecord
    from tasks.reporting import Report

PAYS = {"base": {1: 50.0, 16: 40.0}, "a": {1: 90.0, 16: 55.0}}
FAILS = {"base": {1: 80.0, 16: 60.0}, "a": {1: 70.0, 16: 45.0}}


def unlike(fails: dict[str, dict[int, float]] | None = None) -> list[TrialRecord]:
    """Six blocks on two B200 hosts, on which a pays, and two on an H200 host, on which it does not."""
    many = pool(PAYS, blocks=(3, 3), host_class="8x-b200")
    few = [
        r.model_copy(update={"host": "old", "block": r.block + 6})
        for r in pool(fails or FAILS, blocks=(4,), host_class="8x-h200", seed=2)
    ]
    return [
        r.model_copy(update={"order": order, "trial": f"t{order:03d}"})
        for order, r in enumerate([*many, *few])
    ]


def test_the_smaller_class_is_not_refused():
    found = compare_classes(sweep(), unlike())
    assert [one.host_class for one in found] == ["8x-b200", "8x-h200"]
    assert [one.refusals for one in found] == [(), ()]
    assert {one.classes for one in found} == {("8x-b200", "8x-h200")}
    assert [{c.verdict for c in one.cells} for one in found] == [{"better"}, {"worse"}]


def test_the_plan_says_how_few_blocks_each_class_has():
    asked = sweep(("blocks: 2", "blocks: 4"), ("hosts: [box]", "hosts: [one, two, old]"))
    box = read_host("rehearsal")
    new, old = (box.model_copy(update={"host_class": name}) for name in ("8x-b200", "8x-h200"))
    known = {"one": new, "two": new, "old": old}
    (said,) = unlike_hosts(make_plan(asked).trials, known)
    assert said == (
        "hosts: of 2 classes, each compared for itself: 8x-b200 (one, two) in 3 blocks; "
        "8x-h200 (old) in 1 block, which gives no interval"
    )
    assert unlike_hosts(make_plan(asked).trials, known | {"old": new}) == []


def test_each_class_says_what_it_would_say_alone():
    records = unlike()
    for one in compare_classes(sweep(), records):
        own = [r for r in records if r.host_class == one.host_class]
        assert one.model_copy(update={"classes": ()}) == compare_sweep(sweep(), own)


def test_one_class_is_as_it_always_was():
    records = pool(PAYS, blocks=(3, 3))
    assert compare_classes(sweep(), records) == (compare_sweep(sweep(), records),)
    assert decision_of(compare_classes(sweep(), records)) == decision_sentence(
        compare_sweep(sweep(), records)
    )
    assert compare_classes(sweep(), [])[0].problem == "there are no trials"


def test_one_sentence_names_both():
    said = decision_of(compare_classes(sweep(), unlike()))
    assert said.startswith("On 8x-b200: Deploy a: +37 % [")
    assert "; on 8x-h200: Speculation does not pay here: the best setting, a, is at -1" in said


def test_what_is_no_claim_is_said_once_and_first():
    records = [r.model_copy(update={"rehearsal": True}) for r in unlike()]
    said = decision_of(compare_classes(sweep(), records))
    assert said.startswith("REHEARSAL: no claim about any GPU. On 8x-b200: Deploy a")
    assert said.count("REHEARSAL") == 1


def test_a_class_on_which_all_failed_is_named_too():
    records = [
        r.model_copy(update={"status": "failed", "failure": failure()})
        if r.host_class == "8x-h200"
        else r
        for r in unlike()
    ]
    assert "; on 8x-h200: No comparison: no trial of the baseline arm base is ok" in decision_of(
        compare_classes(sweep(), records)
    )


def test_trials_that_were_never_begun_go_with_their_host():
    records = unlike()
    skipped = records[-1].model_copy(update={"status": "skipped", "host_class": "unknown"})
    lost = skipped.model_copy(update={"host": "never-seen", "trial": "t999"})
    parts = by_host_class([*records[:-1], skipped, lost])
    assert list(parts) == ["8x-b200", "8x-h200"]
    assert skipped in parts["8x-h200"]
    assert lost in parts["8x-b200"]


def test_other_facts_are_refused_as_before():
    records = unlike()
    odd = {**records[-1].must_match, "driver": "999.9"}
    records[-1] = records[-1].model_copy(update={"must_match": odd})
    refused = [one.refusals for one in compare_classes(sweep(), records)]
    assert refused[0] == ()
    assert [d.fact for d in refused[1][0].differences] == ["driver"]


class Written(NamedTuple):
    """A report and where it went."""

    report: Report
    folder: Path
    client: ScriptedMlflow
    notes: list[str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    client, notes = ScriptedMlflow(), list[str]()
    folder = tmp_path_factory.mktemp("runs") / "two-drafters" / "0001"
    write_text(folder / "run.json", json.dumps({"uid": "abc"}))
    tracker = Tracker("http://mlflow", note=notes.append, client=client)
    report = write_report(RunFolder(folder), sweep(), unlike(), tracker, pytest.fail)
    return Written(report, folder / "report", client, notes)


def test_the_report_has_a_part_for_each_class(written: Written):
    markdown = written.report.markdown
    lines = markdown.splitlines()
    assert any(line.startswith("**On 8x-b200: Deploy a") for line in lines)
    at = [lines.index(f"## Against base ({name})") for name in ("8x-b200", "8x-h200")]
    assert at == sorted(at)
    assert "## Between hosts (8x-b200)" in lines
    assert "## Between hosts (8x-h200)" not in lines
    assert "8 trials on old (8x-h200)" in markdown
    for one in written.report.comparisons:
        name = f"comparison--{one.host_class}.json"
        assert json.loads((written.folder / name).read_text())["host_class"] == one.host_class
        assert f"(speed-load--{one.host_class}.png)" in markdown
        assert (written.folder / f"speed-load--{one.host_class}.png").exists()
    first = json.loads((written.folder / "comparison.json").read_text())
    assert first["classes"] == ["8x-b200", "8x-h200"]
    page = (written.folder / "report.html").read_text()
    assert page.count("<picture>") >= 4
    assert 'href="#against-base-8x-h200"' in page


def test_mlflow_has_the_verdicts_of_each_class(written: Written):
    run = written.report.mlflow_run
    assert run is not None
    assert written.notes == []  # no name or value had to be changed
    for name in ("8x-b200", "8x-h200"):
        logged = written.client.points[f"{name}/load/a/output_tok_s_ratio"]
        assert {point.step for point in logged} == {1, 16}
    tags = written.client.runs[run].data.tags
    assert tags["verdict"] == written.report.sentence
    assert tags["verdict.8x-h200"].startswith("Speculation does not pay here")


def test_the_terminal_shows_both():
    found = compare_classes(sweep(), unlike())
    out = io.StringIO()
    Console(file=out, width=100).print(verdicts_text(found, decision_of(found)))
    shown = out.getvalue()
    assert shown.index("On 8x-b200\n") < shown.index("On 8x-h200\n") < shown.index("On 8x-b200: D")


def test_a_narrow_terminal_breaks_words_and_cuts_no_figure():
    found = compare_classes(sweep(), unlike())
    wide, narrow = (io.StringIO() for _ in range(2))
    for out, width in ((wide, 200), (narrow, 54)):
        Console(file=out, width=width).print(verdicts_text(found, decision_of(found)))
    intervals = re.findall(r"\[\S+, \S+\]", wide.getvalue())
    assert intervals
    assert re.findall(r"\[\S+, \S+\]", narrow.getvalue()) == intervals


def test_a_sweep_goes_on_until_every_class_knows_enough():
    found = compare_classes(sweep(), unlike())
    assert enough_everywhere(found, 0.2) == enough_known(found[0], 0.2)
    open_one = {"base": {1: 80.0, 16: 60.0}}
    assert enough_everywhere(compare_classes(sweep(), unlike(open_one)), 0.2) is None


def test_an_export_is_for_one_class():
    strata = strata_of(sweep(), unlike())
    assert _one_class(strata, "8x-h200") == strata[1]
    assert _one_class(strata[:1], None) == strata[0]
    with pytest.raises(ConfigError, match="name one of 8x-b200, 8x-h200"):
        _one_class(strata, None)
    with pytest.raises(ConfigError, match="there is no 8x-a100: name one of"):
        _one_class(strata, "8x-a100")
