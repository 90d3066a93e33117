"""A night that is cut short answers the main question first, and says what it left undone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from configs.deadline import Deadline
from configs.host import Price
from configs.plan import make_plan
from flows.budget import Budget, budget_of, outlook, past_boots
from flows.question import Question, pose
from flows.show_budget import outlook_lines, outlook_text
from infra.store import Store
from tasks.compare import compare
from tasks.durations import boots
from tasks.forecast import Oracle, longest
from tasks.record import StageTime
from tasks.report import render_report
from tasks.spans import money, span
from tasks.undone import LEFT_OUT, is_undone, undone_section, undone_sentence
from tests import builders, sweeping
from tests.sweeps import host, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from configs.sweep import Sweep
    from infra.store import RunFolder
    from tasks.record import TrialRecord
    from tests.sweeping import Ground

NOW = datetime(2026, 12, 1, 21, tzinfo=UTC)
SECONDS = 600.0


def question(asked: Sweep, **fields: object) -> Question:
    box = host(**fields)
    return Question(asked, {"box": box}, (), {}, make_plan(asked), ())


def measured(asked: Sweep, *ids: str, status: str = "ok") -> list[TrialRecord]:
    """Records of trials that took ten minutes each."""
    stage = StageTime(name="probe:load", seconds=SECONDS, attempts=1, outcome="done", note="")
    return [
        builders.record(
            trial.arm,
            trial.block,
            trial=trial.id,
            levels=trial.levels,
            order=trial.order,
            host="box",
            host_class="8x-h200",
            status=status,
            stages=(stage,),
            ended_at="2026-03-01T22:00:00+00:00",
        )
        for trial in make_plan(asked).trials
        if not ids or trial.id in ids
    ]


def run_through(asked: Sweep, fits: float) -> list[TrialRecord]:
    """The records of a night with room for so many trials, by a clock that only trials move."""
    posed = question(asked)
    at = [NOW]
    deadline = Deadline(NOW + timedelta(seconds=fits * SECONDS), "06:30 UTC")
    known = list(boots(asked, posed.plan.trials, measured(asked)))
    budget = Budget(posed, known, deadline, lambda: at[0])
    records: dict[str, TrialRecord] = {}
    for trial in posed.plan.trials:
        reason = budget.why_not(trial, records)
        (record,) = measured(asked, trial.id)
        if reason is None:
            at[0] += timedelta(seconds=SECONDS)
            assert at[0] <= deadline.at, "begun, and not over by then"
        else:
            record = record.model_copy(
                update={"status": "skipped", "stages": (), "notes": (reason,), "measurements": ()}
            )
        records[trial.id] = record
    return list(records.values())


@pytest.mark.parametrize("fits", [0, 1, 2, 5, 9.5, 18, 20, 24, 35.9, 36])
def test_a_night_does_what_was_allotted_and_is_over_in_time(fits):
    asked = sweep(("blocks: 2", "blocks: 6"))
    made = run_through(asked, fits)
    ran = [record for record in made if record.status == "ok"]
    assert len(ran) in {int(fits), int(fits) - 1}, "a baseline alone is not begun"
    assert all(is_undone(record) for record in made if record not in ran)
    by_block = {block: [r for r in ran if r.block == block] for block in range(1, 7)}
    if fits >= 9:
        for block in (1, 2, 3):
            main = {r.arm for r in by_block[block] if r.levels == {"nccl": "default"}}
            assert main == {"base", "a", "b"}


def test_the_report_says_what_was_left_undone_and_what_that_means():
    asked = sweep(("blocks: 2", "blocks: 4"))
    made = run_through(asked, 20)
    text = undone_section(made)
    assert "4 of 24 trials were not begun for want of time" in text
    assert "- Block 4: without " in text
    assert "Whole blocks: 3 of 4." in text
    assert "Every setting has a ratio to the baseline in 3 to 4 blocks." in text
    assert "06:30 UTC" in text
    sentence = undone_sentence(made)
    assert sentence is not None
    assert sentence.startswith("4 of 24 trials were left undone for want of time; ")
    report = render_report(compare(made), made)
    assert report.index("## Left undone") < report.index("## Against base")


def test_a_whole_night_says_nothing():
    assert undone_section(measured(sweep())) == ""
    assert undone_sentence(measured(sweep())) is None


def test_without_any_record_a_trial_is_begun_until_the_time_is_over():
    asked = sweep()
    posed = question(asked)
    at = [NOW]
    budget = Budget(posed, [], Deadline(NOW + timedelta(hours=1), "22:00 UTC"), lambda: at[0])
    first, second, *_ = posed.plan.trials
    assert budget.why_not(first, {}) is None
    at[0] += timedelta(minutes=59)
    (record,) = measured(asked, first.id)
    reason = budget.why_not(second, {first.id: record})
    assert reason is not None
    assert reason.startswith(f"{LEFT_OUT} 22:00 UTC: it takes up to 10 min by ")
    assert reason.endswith("and 60 s are left")
    at[0] += timedelta(minutes=1)
    assert budget.why_not(second, {}) == f"{LEFT_OUT} 22:00 UTC, which is over"


def test_a_second_attempt_needs_time_too():
    asked = sweep()
    posed = question(asked)
    known = list(boots(asked, posed.plan.trials, measured(asked)))
    trial = posed.plan.trials[-1]
    (suspect,) = measured(asked, trial.id, status="suspect")
    for fits, begun in ((0.5, False), (1, True), (9, True)):
        deadline = Deadline(NOW + timedelta(seconds=fits * SECONDS), "06:30 UTC")
        budget = Budget(posed, known, deadline, lambda: NOW)
        assert (budget.why_not(trial, {trial.id: suspect}) is None) == begun


def test_a_setting_that_cannot_start_takes_nobodys_place():
    asked = sweep(("blocks: 2", "blocks: 3"))
    posed = question(asked)
    known = list(boots(asked, posed.plan.trials, measured(asked)))
    (broken,) = measured(asked, "b01-b-default", status="failed")
    records = {broken.trial: broken.model_copy(update={"failure": builders.failure()})}
    trial = next(t for t in posed.plan.trials if t.block == 3 and t.levels["nccl"] == "default")
    # In three blocks six main cells are left that can start.
    for fits in (5, 6):
        left = Deadline(NOW + timedelta(seconds=fits * SECONDS), "t")
        budget = Budget(posed, known, left, lambda: NOW)
        mains = [t for t in posed.plan.trials if t.levels["nccl"] == "default" and t.arm != "b"]
        said = [budget.why_not(t, records) for t in mains if t.order >= trial.order]
        assert not any(said)


def lines(posed: Question, folder: Path, until: str | None = None) -> str:
    return outlook_text(posed, Store(folder), until, NOW).plain


def test_a_plan_without_any_record_says_that_it_does_not_know(tmp_path):
    text = lines(question(sweep()), tmp_path, "06:30 UTC")
    assert "unknown how long 12 trials take" in text
    assert "at most 36 h 28 min" in text
    assert "until 06:30 UTC on Wednesday, 2 December (UTC): unknown how many of them fit" in text


def test_a_plan_says_time_and_money(tmp_path):
    posed = question(sweep(), price_per_hour={"amount": 24, "currency": "USD"})
    known = list(boots(posed.sweep, posed.plan.trials, measured(posed.sweep)))
    seen = outlook(posed, Store(tmp_path), None, NOW)
    told = Oracle(posed.sweep, posed.hosts, known).all(posed.plan.trials)
    seen = seen._replace(forecast=told, together=told)
    text = "\n".join(outlook_lines(seen, tuple(posed.hosts.values()), NOW))
    assert "12 trials take about 2 h, 2 h if each is as slow" in text
    assert "begun now, the sweep ends at 23:00 UTC on Tuesday, 1 December" in text
    assert "48 USD, at most 48 USD by these times, at 24 USD per hour" in text
    assert "for 12 of them by the same setting on this host class" in text


def test_a_plan_on_several_hosts_says_what_they_do_at_once(tmp_path):
    asked = sweep(("blocks: 2", "blocks: 4"), ("hosts: [box]", "hosts: [one, two]"))
    hosts = {name: host().model_copy(update={"name": name}) for name in ("one", "two")}
    posed = Question(asked, hosts, (), {}, make_plan(asked), ())
    known = list(boots(asked, posed.plan.trials, measured(asked)))
    oracle = Oracle(asked, hosts, known)
    halves = [[t for t in posed.plan.trials if t.host == name] for name in hosts]
    seen = outlook(posed, Store(tmp_path), None, NOW)._replace(
        forecast=oracle.all(posed.plan.trials),
        together=longest([oracle.all(half) for half in halves]),
    )
    text = "\n".join(outlook_lines(seen, tuple(hosts.values()), NOW))
    assert "24 trials take about 2 h, 2 h if each is as slow as the slowest recorded, on 2" in text
    assert "on 2 hosts at once, as through Prefect; one after another, as with" in text
    assert "`eagle3-sweep run`: 4 h" in text
    assert "for 24 of them by the same setting" in text


def test_a_place_of_several_nodes_has_a_forecast(tmp_path):
    asked = sweep(("hosts: [box]", "hosts: [[one, two]]"))
    hosts = {name: host().model_copy(update={"name": name}) for name in ("one", "two")}
    posed = Question(asked, hosts, (), {}, make_plan(asked), ())
    assert "unknown how long 12 trials take" in lines(posed, tmp_path)


def test_spans_and_sums_are_as_fine_as_it_helps():
    assert [span(s) for s in (5, 89, 91, 3599, 3600, 28_200)] == [
        "5 s",
        "89 s",
        "2 min",
        "1 h",
        "1 h",
        "7 h 50 min",
    ]
    assert (money(0.5, "EUR"), money(1234.5, "USD")) == ("0.50 EUR", "1,234 USD")
    assert Price.model_validate({"amount": "24.0", "currency": "USD"}).amount == 24


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("budget")) as made:
        yield made


def test_after_its_deadline_nothing_is_started(ground: Ground) -> None:
    over = Deadline(NOW, "06:30 UTC")

    def budget(posed: Question, _run: RunFolder) -> Budget:
        return Budget(posed, [], over, lambda: NOW)

    outcome = ground.run(sweeping.sweep("over", arms="base+tuned", blocks=2), budget=budget)
    assert {record.notes for record in outcome.records} == {
        (f"{LEFT_OUT} 06:30 UTC, which is over",)
    }
    assert "- Block 2: nothing of it was run" in outcome.report.markdown
    assert not ground.engines()


@pytest.mark.long
def test_a_real_night_is_forecast_from_the_one_before_and_cut_at_its_deadline(
    ground: Ground,
) -> None:
    asked = sweeping.sweep("cut", arms="base+tuned", blocks=2).model_copy(
        update={"tolerate": {"client_was_the_bottleneck": "this is not about speed"}}
    )
    first = ground.run(asked)
    assert [record.status in sweeping.MEASURED for record in first.records] == [True] * 4
    posed = pose(asked, str(ground.host_file()))
    boot = past_boots(ground.runs, posed.hosts)
    assert len(boot) == 4
    assert [each.first for each in sorted(boot, key=lambda each: each.began)].count(True) == 1
    assert all(each.start_s > 0 and each.probes["load"] > 0 for each in boot)
    again = outlook(posed, ground.runs)
    assert (again.done, again.forecast.trials) == (4, 0)

    one = max(each.start_s + each.probes["load"] for each in boot)
    at = datetime.now(UTC)

    def cut(posed: Question, run: RunFolder) -> Budget:
        made = budget_of(posed, ground.runs, run, "06:30 UTC")
        assert made is not None
        deadline = Deadline(at + timedelta(seconds=4.5 * one), "06:30 UTC")

        def clock() -> datetime:
            """Every boot took twice as long as the slowest before."""
            return at + timedelta(seconds=2 * one * len(run.records()))

        return Budget(posed, past_boots(ground.runs, posed.hosts), deadline, clock)

    outcome = ground.run(asked, fresh=True, budget=cut)
    assert [record.block for record in outcome.records if record.stages] == [1, 1]
    left = [record for record in outcome.records if record.status == "skipped"]
    assert [record.block for record in left] == [2, 2]
    assert "## Left undone" in outcome.report.markdown
    assert "- Block 2: nothing of it was run" in outcome.report.markdown
    assert "until 06:30 UTC: no trial is begun that would not be over by then" in ground.said
    on = ground.run(asked)
    assert all(record.status in sweeping.MEASURED for record in on.records), "it goes on"
