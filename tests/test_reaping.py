"""Which runs are dead, and which slots are nobody's: looked up where that can be, else by silence."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from flows.reaping import Going, Slot, Unheld, fate, to_release, unheld
from flows.schedules import too_late
from infra.process_identity import look_up, this_process

NOW = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)


def going(process=None, silent_s: float = 0, holds: str = "") -> Going:
    heard = NOW - timedelta(seconds=silent_s)
    return Going("1", "night", process, heard, frozenset(holds.split()))


@pytest.mark.parametrize(
    ("process", "silent_s", "is_now"),
    [
        ("alive", 90_000, "alive"),
        ("dead", 0, "dead"),
        ("elsewhere", 899, "alive"),
        ("elsewhere", 901, "dead"),
        (None, 899, "alive"),
        (None, 901, "dead"),
    ],
)
def test_a_process_that_can_be_seen_decides_and_else_long_silence(process, silent_s, is_now):
    assert fate(going(process, silent_s), NOW, 900) == is_now


def test_a_slot_is_given_back_only_after_it_was_nobodys_for_long():
    slot = Slot("host-box", NOW - timedelta(hours=1))
    first = unheld([slot], [going()], {}, NOW)
    assert first == {"host-box": Unheld(NOW, slot.changed)}
    assert not to_release(first, NOW, 900)
    later = NOW + timedelta(seconds=900)
    second = unheld([slot], [going()], first, later)
    assert to_release(second, later, 900) == ["host-box"]


def test_a_slot_that_a_living_run_holds_is_left_alone():
    slot = Slot("host-box", NOW)
    assert unheld([slot], [going(holds="host-box host-b")], {}, NOW) == {}


def test_a_slot_that_was_taken_again_in_between_starts_anew():
    before = {"host-box": Unheld(NOW - timedelta(hours=2), NOW - timedelta(hours=3))}
    found = unheld([Slot("host-box", NOW - timedelta(minutes=1))], [], before, NOW)
    assert found["host-box"].since == NOW


def test_this_process_is_alive_and_one_that_ended_is_dead():
    assert look_up(this_process()) == "alive"
    code = "from infra.process_identity import this_process; print(this_process())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert look_up(done.stdout.strip()) == "dead"


def test_a_process_of_another_machine_is_elsewhere_and_one_of_an_earlier_boot_is_dead():
    node, boot, namespace, pid, ticks = this_process().rsplit("/", 4)
    assert look_up(f"other/{boot}/{namespace}/{pid}/{ticks}") == "elsewhere"
    assert look_up(f"{node}/earlier/{namespace}/{pid}/{ticks}") == "dead"
    assert look_up(f"{node}/{boot}/pid:[1]/{pid}/{ticks}") == "elsewhere"
    assert look_up(f"{node}/{boot}/{namespace}/{pid}/1") == "dead"


@pytest.mark.parametrize(
    ("late_h", "within_h", "missed"),
    [(3.9, 4, False), (4.1, 4, True), (100, None, False), (-1, 4, False)],
)
def test_a_night_may_begin_late_and_not_too_late(late_h, within_h, missed):
    said = too_late(NOW - timedelta(hours=late_h), NOW, within_h)
    assert (said is not None) is missed
    if said:
        assert "planned for 2026-11-30 02:54 UTC, its turn came 4.1 h later" in said
