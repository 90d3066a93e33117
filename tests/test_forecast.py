"""How long a sweep will take, by recorded times; what nobody knows is said to be unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from configs.host import Host
from configs.plan import Trial, make_plan
from tasks.durations import Boot, boots, longest_s, works
from tasks.forecast import RECORDED, Oracle
from tasks.record import StageTime, TrialRecord
from tests import builders
from tests.sweeps import HOST, sweep

if TYPE_CHECKING:
    from configs.sweep import Sweep

HOSTS = {"box": Host.model_validate(HOST)}


def record(
    trial: Trial, start_s: float, probe_s: float, minute: int = 0, **more: Any
) -> TrialRecord:
    """A trial that took so long, begun so many minutes into the night."""
    times = {"wait_ready": start_s, "probe:load": probe_s}
    stages = tuple(
        StageTime(name=name, seconds=seconds, attempts=1, outcome="done", note="")
        for name, seconds in times.items()
    )
    begun = (datetime(2026, 3, 1, 22, tzinfo=UTC) + timedelta(minutes=minute)).isoformat()
    fields: dict[str, Any] = {"levels": trial.levels, "trial": trial.id, "order": trial.order}
    return builders.record(
        trial.arm,
        trial.block,
        host_class="8x-h200",
        host="box",
        stages=stages,
        started_at=begun,
        ended_at=begun,
        **fields | more,
    )


def past(asked: Sweep, times: dict[str, tuple[float, float]], **more: Any) -> list[Boot]:
    """Boots by trial id -> (start, probe), ten minutes apart, in the order of the plan."""
    trials = make_plan(asked).trials
    made = [
        record(trial, *times[trial.id], minute=10 * trial.order, **more)
        for trial in trials
        if trial.id in times
    ]
    return list(boots(asked, trials, made))


def everything(asked: Sweep, start_s: float = 300.0, probe_s: float = 200.0):
    return {trial.id: (start_s, probe_s) for trial in make_plan(asked).trials}


def test_a_setting_that_was_measured_takes_as_long_again():
    asked = sweep()
    plan = make_plan(asked)
    times = everything(asked)
    times["b02-a-ll"] = (340.0, 260.0)
    oracle = Oracle(asked, HOSTS, past(asked, times))
    (trial,) = [t for t in plan.trials if t.id == "b01-a-ll"]
    found = oracle.expected(trial)
    assert found is not None
    assert (found.seconds, found.late_s) == (320.0 + 230.0, 340.0 + 260.0)
    assert found.recorded


def test_a_whole_sweep_is_the_sum_and_says_whose_times_these_are():
    asked = sweep()
    plan = make_plan(asked)
    found = Oracle(asked, HOSTS, past(asked, everything(asked))).all(plan.trials)
    assert found.seconds == len(plan.trials) * 500.0
    assert found.grounds == {RECORDED: len(plan.trials)}
    assert found.unknown == 0


def test_nothing_recorded_is_unknown_and_only_patience_bounds_it():
    asked = sweep()
    plan = make_plan(asked)
    found = Oracle(asked, HOSTS, []).all(plan.trials)
    assert (found.seconds, found.late_s, found.grounds) == (None, None, {})
    assert found.unknown == len(plan.trials)
    assert found.at_most_s == len(plan.trials) * longest_s(asked)
    assert longest_s(asked) == 3600 + 20 + 120 + 2 * 3600


def test_another_arm_is_a_first_estimate_from_its_kind():
    asked = sweep()
    times = {
        "b01-base-default": (250.0, 400.0),
        "b02-base-default": (250.0, 400.0),
        "b01-a-default": (310.0, 200.0),
        "b02-a-default": (310.0, 200.0),
    }
    oracle = Oracle(asked, HOSTS, past(asked, times))
    by_id = {trial.id: trial for trial in make_plan(asked).trials}
    of_a = oracle.expected(by_id["b01-a-ll"])
    assert of_a is not None
    assert of_a.seconds == pytest.approx(310 + 200)
    assert "same kind of speculation on this host class" in of_a.grounds
    base = oracle.expected(by_id["b02-base-ll"])
    assert base is not None
    assert base.seconds == pytest.approx(250 + 400)


def test_another_amount_of_traffic_scales_the_probe_and_not_the_start():
    known, more = sweep(), sweep(("prompts: mixed", "prompts: mixed\n    requests_per_slot: 20"))
    oracle = Oracle(more, HOSTS, past(known, everything(known)))
    found = oracle.expected(make_plan(more).trials[0])
    assert found is not None
    once, twice = works(known)["load"][1], works(more)["load"][1]
    assert found.seconds == pytest.approx(300 + 200 * twice / once)
    assert not found.recorded


def test_the_engine_s_own_client_takes_what_the_probe_takes_that_it_repeats():
    asked = sweep(("probes:", "probes:\n  theirs: {kind: bench-serving, of: load}"))
    found = works(asked)
    assert found["theirs"] == ("bench-serving", found["load"][1])
    without = longest_s(sweep())
    assert longest_s(asked) > without


def test_another_host_class_is_the_last_resort_and_a_pretend_host_none():
    asked = sweep()
    elsewhere = {"box": HOSTS["box"].model_copy(update={"host_class": "8x-b200"})}
    found = Oracle(asked, elsewhere, past(asked, everything(asked))).all(make_plan(asked).trials)
    assert list(found.grounds) == ["the same model on another host class"]
    pretend = past(asked, everything(asked), rehearsal=True)
    assert Oracle(asked, HOSTS, pretend).all(make_plan(asked).trials).seconds is None


def test_another_model_tells_nothing():
    known, other = sweep(), sweep(("model: /models/target", "model: /models/other"))
    oracle = Oracle(other, HOSTS, past(known, everything(known)))
    assert oracle.expected(make_plan(other).trials[0]) is None


def test_the_first_boot_of_a_night_reads_from_a_cold_disk():
    asked = sweep()
    plan = make_plan(asked)
    times = everything(asked)
    times[plan.trials[0].id] = (1800.0, 200.0)
    oracle = Oracle(asked, HOSTS, past(asked, times))
    cold = oracle.expected(plan.trials[3], first=True)
    warm = oracle.expected(plan.trials[0])
    assert cold is not None
    assert warm is not None
    assert (cold.seconds, warm.seconds) == (2000.0, 500.0)
    assert oracle.all(plan.trials).seconds == 2000.0 + (len(plan.trials) - 1) * 500.0


def test_failed_and_skipped_trials_tell_nothing():
    asked = sweep()
    made = past(asked, everything(asked), status="failed", failure=builders.failure())
    assert made == []


def test_only_the_latest_boots_count():
    asked = sweep(("blocks: 2", "blocks: 12"))
    plan = make_plan(asked)
    times = everything(asked)
    times |= {t.id: (900.0, 200.0) for t in plan.trials if t.block <= 4}
    (trial,) = [t for t in plan.trials if t.id == "b12-a-ll"]
    found = Oracle(asked, HOSTS, past(asked, times)).expected(trial)
    assert found is not None
    assert found.late_s == 500.0
