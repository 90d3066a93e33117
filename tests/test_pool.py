"""Blocks among several places: each is run whole at one, and a lost place gives its blocks back."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.plan import make_plan
from flows.blocks import Blocks, classes_of, read_note
from flows.lane import RunChanged, Work, question_of
from flows.outcome import Hands, begin, conclude
from flows.pool import Pool, whole_blocks
from flows.question import pose
from flows.runs import open_run, read_records
from flows.stages import PlainRunner
from infra.connect import connect
from infra.errors import ContactLost
from infra.run_locks import RunHeld, alone, is_conducted, lane, lanes
from infra.store import RunFolder, Store
from tests import builders, pooling, sweeping
from tests.sweeps import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from configs.host import Host
    from flows.outcome import Outcome
    from infra.host_agent import HostAgent
    from tests.pooling import Several

_PLACES = ("one", "two", "three", "four")
_ASKED = sweep(("blocks: 2", "blocks: 7"), ("hosts: [box]", f"hosts: [{', '.join(_PLACES)}]"))
_PLAN = make_plan(_ASKED)


def blocks_in(folder: Path, **classes: str) -> Blocks:
    made = Blocks(RunFolder(folder), _PLAN, dict.fromkeys(_PLACES, "h200") | classes)
    made.begin([], [])
    return made


@given(steps=st.lists(st.tuples(st.sampled_from(_PLACES), st.booleans()), max_size=40))
@settings(max_examples=60, deadline=None)
def test_whoever_takes_and_is_lost_each_block_is_run_whole_by_one_that_was_not(
    steps: list[tuple[str, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        shared = blocks_in(Path(folder))
        finished: dict[int, str] = {}
        lost: set[str] = set()
        for place, dies in [*steps, *[(place, False) for place in _PLACES for _ in range(7)]]:
            if place in lost:
                continue
            if dies and len(lost) < len(_PLACES) - 1:
                shared.take(place)
                shared.lose(place, "gone")
                lost.add(place)
            elif (block := shared.take(place)) is not None:
                assert block not in finished
                shared.finish(block)
                finished[block] = place
        assert sorted(finished) == [1, 2, 3, 4, 5, 6, 7]
        assert shared.left() == []
        taken = read_note(RunFolder(Path(folder))).taken
        assert taken == finished


def test_a_block_that_was_begun_waits_for_its_place(tmp_path):
    shared = blocks_in(tmp_path)
    assert [shared.take(place) for place in ("one", "two", "one")] == [1, 2, 1]
    shared.finish(1)
    shared.begin([], [])  # another process goes on
    assert shared.take("three") == 3
    assert shared.take("two") == 2
    assert shared.take("one") == 1, "looked at again: its driver may be another one now"


def test_whole_blocks_of_a_lost_place_are_not_run_again(tmp_path):
    shared = blocks_in(tmp_path)
    for place in ("one", "two"):
        block = shared.take(place)
        assert block is not None
        shared.finish(block)
    shared.begin([1], [])
    shared.lose("one", "gone")
    shared.lose("two", "gone")
    assert [shared.take("three"), shared.left()] == [2, [2, 3, 4, 5, 6, 7]]


def test_unlike_hosts_keep_to_the_blocks_of_their_class(tmp_path):
    shared = blocks_in(tmp_path, three="b200", four="b200")
    taken: dict[str, list[int]] = {place: [] for place in _PLACES}
    for place in ("one", "three") * 7:
        if (block := shared.take(place)) is not None:
            shared.finish(block)
            taken[place].append(block)
    assert (taken["one"], taken["three"]) == ([1, 2, 5, 6], [3, 4, 7])
    assert not shared.has_some_for("two")


def test_words_say_who_was_lost_and_what_nobody_ran(tmp_path):
    shared = blocks_in(tmp_path)
    for block in range(1, 6):
        shared.finish(block)
    for place in _PLACES:
        shared.lose(place, "no answer for 120 s")
    assert shared.words()[0] == "one was given up: no answer for 120 s."
    assert shared.words()[-1] == "No host was left for blocks 6, 7."


def test_a_block_is_whole_when_every_trial_has_a_result_that_stands():
    posed = pose(_ASKED.model_copy(update={"hosts": ("rehearsal",)}))
    records = [
        builders.record(t.arm, t.block, trial=t.id, levels=t.levels)
        for t in posed.plan.trials
        if t.block < 3 and t.order != 0
    ]
    assert whole_blocks(posed, records) == [2]


def test_a_run_is_not_gone_on_with_while_a_lane_works_on_it(tmp_path):
    with alone(tmp_path, "pool-0001"):
        assert is_conducted(tmp_path)
        with (
            lane(tmp_path, "one"),
            pytest.raises(RunHeld, match="one: process"),
            lane(tmp_path, "one"),
        ):
            pass
    assert not is_conducted(tmp_path)
    with lane(tmp_path, "one+two"):
        assert list(lanes(tmp_path)) == ["one+two"]
        with (
            pytest.raises(RunHeld, match=r"still at work on one\+two"),
            alone(tmp_path, "pool-0001"),
        ):
            pass
    with alone(tmp_path, "pool-0001"):
        assert lanes(tmp_path) == {}


def test_a_lane_asks_what_its_run_asked_or_nothing(tmp_path):
    asked = sweeping.sweep("asked", blocks=2)
    posed = pose(asked, "rehearsal")
    with open_run(Store(tmp_path), posed) as run:
        assert question_of(run).plan == posed.plan
        later = posed.plan.model_copy(
            update={
                "trials": tuple(t.model_copy(update={"intent": "x"}) for t in posed.plan.trials)
            }
        )
        (run.path / "plan.json").write_text(later.model_dump_json())
        with pytest.raises(RunChanged, match="prompts or patches are not what they were"):
            question_of(run)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    with pooling.several(tmp_path_factory.mktemp("alone"), 2) as made:
        yield made


class Nobody:
    """No worker takes anything."""

    def start(self, _place: str) -> bool:
        return False

    def going(self, _place: str) -> bool:
        return False

    def cancel(self, _place: str) -> None:
        pass


def by_itself(two: Several, name: str, reach: Callable[[Host], HostAgent]) -> Outcome:
    """A pool whose conducting process is alone."""
    posed = pose(sweeping.sweep(name, arms="base+tuned", blocks=3), two.host_files())
    said: list[str] = []
    hands = Hands(reach, lambda _trial: PlainRunner(said.append), None, said.append)
    with open_run(two.runs, posed) as run:
        shared = Blocks(run, posed.plan, classes_of(posed))
        shared.begin([], begin(posed, run, hands, None))
        Pool(
            Work(posed, run, hands, None), Nobody(), lambda _place: nullcontext(), said.append
        ).carry_out()
        outcome = conclude(posed, run, hands, read_records(run))
    return outcome._replace(notes=shared.words())


def test_without_any_worker_one_process_comes_to_the_end(two: Several) -> None:
    outcome = by_itself(two, "alone", lambda spec: connect(spec, patience_s=10))
    assert len(outcome.records) == 6
    assert {record.status for record in outcome.records} <= sweeping.MEASURED
    assert outcome.notes == ()


def test_a_host_that_cannot_be_had_leaves_its_blocks_to_the_others(two: Several) -> None:
    def reach(spec: Host) -> HostAgent:
        if spec.name == "host-1":
            raise ContactLost("no route to host-1")
        return connect(spec, patience_s=10)

    outcome = by_itself(two, "lost", reach)
    assert {record.host for record in outcome.records} == {"host-2"}
    assert {record.status for record in outcome.records} <= sweeping.MEASURED
    assert outcome.notes == ("host-1 was given up: no route to host-1.",)
    assert two.empty()


def test_with_no_host_at_all_it_ends_and_says_so(two: Several) -> None:
    def reach(_spec: Host) -> HostAgent:
        raise ContactLost("no route")

    outcome = by_itself(two, "none", reach)
    assert outcome.records == ()
    assert outcome.notes[-1] == "No host was left for blocks 1, 2, 3."
