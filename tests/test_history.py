"""What a setting did over the nights: which figure moved, since when, and what is told in the morning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from configs.plan import make_plan
from configs.problems import ConfigError
from flows.history import history, history_lines, morning_regressions, records_of
from infra.store import Store, write_json, write_value
from tasks.history import change_lines, histories, of_arms, regression_sentences
from tasks.nights import Rung, series, stretches
from tests import builders
from tests.sweeps import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from configs.sweep import Sweep
    from tasks.record import TrialRecord

FIRST = datetime(2026, 11, 1, 22, tzinfo=UTC)
USERS = (1, 8)


def night(
    place: int, *, accept: float = 2.8, step: float = 0.02, boots: int = 2, **more: Any
) -> list[TrialRecord]:
    """One night's boots of an arm, ten minutes apart, each with a little noise of its own."""
    draw = np.random.default_rng(place)
    records = []
    for boot in range(boots):
        at = FIRST + timedelta(days=place, minutes=10 * boot)
        ladder = []
        for users in USERS:
            length = accept * float(np.exp(draw.normal(0, 0.004)))
            time = step * users**0.3 * float(np.exp(draw.normal(0, 0.004)))
            ladder.append(
                builders.measurement(
                    concurrency=users, user_tok_s=length / time, accept_length=length
                )
            )
        fields = {
            "sweep_run": f"nightly-{place + 1:04d}-aa",
            "started_at": at.isoformat(),
            "ended_at": (at + timedelta(minutes=9)).isoformat(),
        } | more
        records.append(builders.record("canary", boot + 1, tuple(ladder), **fields))
    return records


def over(*nights: list[TrialRecord]) -> list[TrialRecord]:
    return [record for each in nights for record in each]


def test_quiet_nights_have_not_moved():
    (found,) = histories(over(*(night(n) for n in range(12))))
    assert len(found.stretch.nights) == 12
    lines = change_lines(found)
    assert [line.partition(":")[0] for line in lines] == [
        "accept length has not moved",
        "step time has not moved",
    ]
    assert not regression_sentences([found])


def test_a_slower_step_is_told_from_a_worse_drafter():
    slow = over(*(night(n, step=0.02 * (1.06 if n >= 10 else 1)) for n in range(12)))
    (found,) = histories(slow)
    step, accept = change_lines(found)[1], change_lines(found)[0]
    assert step.startswith("step time +")
    assert "since the night of 2026-11-11 22:00 (nightly-0011-aa)" in step
    assert "accept length has not moved" in step
    assert accept.startswith("accept length has not moved: varies by 0.")

    worse = over(*(night(n, accept=2.8 * (0.94 if n >= 10 else 1)) for n in range(12)))
    (found,) = histories(worse)
    line = change_lines(found)[0]
    assert line.startswith("accept length -")
    assert "step time has not moved; alone it makes a user's speed -" in line


def test_the_morning_after_is_told_once_and_only_of_what_is_worse():
    steps = [0.02] * 10 + [0.0215] * 3
    said = [
        regression_sentences(histories(over(*(night(n, step=s) for n, s in enumerate(steps[:k])))))
        for k in range(8, 14)
    ]
    told = [sentences for sentences in said if sentences]
    assert len(told) == 1
    assert told[0][0].startswith("canary on h1: step time +")
    better = over(*(night(n, step=0.02 if n < 10 else 0.018) for n in range(11)))
    assert not regression_sentences(histories(better))
    assert change_lines(histories(better)[0])[1].startswith("step time -")


def test_a_night_alone_says_so():
    one = over(*(night(n, step=0.02 if n < 10 else 0.024) for n in range(11)))
    (sentence,) = regression_sentences(histories(one))
    assert sentence.endswith("one night so far: another one will tell whether it stays")


def test_another_fingerprint_or_host_is_another_stretch():
    new: dict[str, Any] = {
        "fingerprint": "e" * 12,
        "must_match": {"target": "kimi-k2.5", "driver": "590.10"},
    }
    records = over(*(night(n) for n in range(6)), *(night(n, step=0.03, **new) for n in (6, 7)))
    first, second = histories(records)
    assert (len(first.stretch.nights), len(second.stretch.nights)) == (6, 2)
    assert not regression_sentences([first, second]), "another driver is no change of the setting"
    text = "\n".join(history_lines([first, second]))
    assert "from here on driver: 580.95 -> 590.10" in text
    assert "2 of the 5 nights after which there is a first look at changes" in text
    assert len(histories(over(night(0), night(1, host="h2")))) == 2


def test_a_run_that_goes_on_the_next_evening_is_two_nights():
    same: dict[str, Any] = {"sweep_run": "nightly-0001-aa"}
    (stretch,) = stretches(over(night(0, **same), night(1, **same)))
    assert [each.boots for each in stretch.nights] == [2, 2]


def test_only_ok_trials_count_and_a_plain_arm_has_no_accept_length():
    records = over(*(night(n, accept=1.0) for n in range(6)), night(6, status="suspect"))
    plain = [
        record.model_copy(
            update={
                "measurements": tuple(
                    m.model_copy(update={"accept_length": 1.0}) for m in record.measurements
                )
            }
        )
        for record in records
    ]
    (found,) = histories(plain)
    assert len(found.stretch.nights) == 6
    assert [watched.figure for watched in found.watched] == ["step_s"]


def test_a_measurement_that_a_night_lacks_shifts_nothing():
    records = over(*(night(n) for n in range(6)))
    short = [
        record.model_copy(update={"measurements": record.measurements[:1]})
        if record.sweep_run == "nightly-0003-aa"
        else record
        for record in records
    ]
    (whole,), (lacking,) = stretches(records), stretches(short)
    assert Rung("load", 8) not in lacking.nights[2].figures["step_s"]
    full, part = series(whole, "step_s"), series(lacking, "step_s")
    assert full is not None
    assert part is not None
    assert max(abs(a - b) for a, b in zip(full, part, strict=True) if a and b) < 0.01


def keep(store: Store, asked: Sweep, records: list[TrialRecord]) -> None:
    """A run folder with these records."""
    run = store.new_run(asked.name)
    write_value(run.path / "sweep.json", asked)
    write_value(run.path / "plan.json", make_plan(asked))
    write_json(run.path / "run.json", {"id": run.id, "uid": "aa"})
    for record in records:
        write_value(run.next_attempt(record.trial).record, record)


def test_it_reads_run_folders_and_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    watched = sweep(("baseline: base", "canary: a\nbaseline: base"))
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    for place in range(12):
        records = night(place, step=0.02 if place < 11 else 0.024)
        named = [record.model_copy(update={"arm": "a"}) for record in records]
        keep(here if place % 2 else there, watched, named)
    history("a", runs=[here.root, there.root])
    text = capsys.readouterr().out
    assert "a on h1: 12 nights of fingerprint ffffffffffff" in text
    assert "night             run, at load c8" in text
    assert "step time +" in text
    assert text.count("nightly-00") >= 12
    with pytest.raises(ConfigError, match=r"no ok trial of it in .*: known arms are a"):
        history("b", runs=[here.root, there.root])
    assert morning_regressions(here, sweep()) == [], "without a canary nothing is watched"
    both = Store(tmp_path / "both")
    for place in range(12):
        records = night(place, step=0.02 if place < 11 else 0.024)
        keep(both, watched, [record.model_copy(update={"arm": "a"}) for record in records])
    (sentence,) = morning_regressions(both, watched)
    assert sentence.startswith("a on h1: step time +")
    assert len(list(records_of(both, watched.name))) == 24
    assert of_arms(histories(records_of(both)), "a+ll") == []


def test_a_canary_must_be_an_arm_and_is_no_part_of_the_question():
    with pytest.raises(ConfigError, match=r"canary: no arm is called 'c': name one of base, a, b"):
        sweep(("baseline: base", "canary: c\nbaseline: base"))
    watched = sweep(("baseline: base", "canary: a\nbaseline: base"))
    assert make_plan(watched) == make_plan(sweep())
