"""A sweep on several places at once: who conducts it starts a lane for each, and works too.

Prefect's workers carry the lanes out, wherever one is free; the lanes take blocks from the run
folder (flows/blocks.py). The conducting process is the lane of the first place itself, and of any
other that nobody works on: so a sweep needs no second worker to come to its end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from configs.plan import blocks_of
from flows.blocks import Blocks, classes_of
from flows.lane import work_lane
from flows.skips import is_final
from infra.run_locks import RunHeld, lane, lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from flows.lane import Work
    from flows.question import Question
    from tasks.record import TrialRecord

_FAILURES: Final = 2
"""A place whose lane was lost is tried once more: it may have been rebooting."""
_PAUSE_S: Final = 2.0
_TO_BEGIN_S: Final = 120.0
"""A lane that no worker began by then is worked on by the conducting process."""


class Crew(Protocol):
    """Has lanes carried out by other processes."""

    def start(self, place: str) -> bool:
        """Asks for a lane; False: there is nobody to ask."""

    def going(self, place: str) -> bool:
        """Whether a lane that was asked for waits, or is at work."""

    def at_its_place(self, place: str) -> bool:
        """Whether a lane that was asked for got its host, and so lets go of it by itself."""

    def cancel(self, place: str) -> None:
        """Ends a lane that was asked for, or takes the request back."""


class Slots(Protocol):
    """Keeps other sweeps away from a place while the block lasts."""

    def __call__(self, place: str) -> AbstractContextManager[None]:
        """Waits a moment for them.

        Raises:
            TimeoutError: Another sweep has them.
        """


class Pool:
    """One run on several places.

    Args:
        work: The run, held by this process, and what it is worked on with here.
        crew: Carries out the other lanes.
        slots: Hold a place.
        clean_up: Ends what a dead lane left at its place.
    """

    def __init__(
        self, work: Work, crew: Crew, slots: Slots, clean_up: Callable[[str], None]
    ) -> None:
        self._work = work
        self._crew = crew
        self._slots = slots
        self._clean_up = clean_up
        classes = classes_of(work.question)
        self._places = tuple(classes)
        self._blocks = Blocks(work.run, work.question.plan, classes)
        self._asked: dict[str, float] = {}
        """Place -> when its lane was asked for last."""
        self._failures = dict.fromkeys(self._places, 0)

    def carry_out(self) -> None:
        """Returns when every block is over, or no place is left that could take the rest."""
        try:
            for place in self._places[1:]:
                self._ask(place)
            while self._blocks.left():
                self._tend(None)
                idle = self._idle()
                if idle is not None and self._work_at(idle):
                    continue
                if idle is None and not self._anybody():
                    return
                time.sleep(_PAUSE_S)
            self._see_them_off()
        finally:
            for place in self._asked:
                self._crew.cancel(place)

    def _ask(self, place: str) -> None:
        if self._crew.start(place):
            self._asked[place] = time.monotonic()

    def _tend(self, at: str | None) -> None:
        """Looks after the lanes: one that ended too early is cleaned up after and asked for again.

        Args:
            at: Where this process is at work itself; None: nowhere, so it could take a place.
        """
        self._work.hands.shown()
        lost, busy = self._blocks.note().lost, lanes(self._work.run.path)
        for place in self._places:
            if place in busy or place == at:
                continue
            if place not in self._asked:
                if at is not None and place not in lost and self._blocks.has_some_for(place):
                    self._ask(place)  # given back by another place
            elif not self._crew.going(place):
                del self._asked[place]
                self._after_its_lane(place, lost)

    def _after_its_lane(self, place: str, lost: Mapping[str, str]) -> None:
        if place in lost:
            self._give_another_chance(place)
        elif self._left_something(place):
            self._failures[place] += 1
            self._clean_up(place)
            if self._failures[place] < _FAILURES:
                self._work.hands.say(f"{place}: its lane is gone; it is started again")
                self._ask(place)
            else:
                self._blocks.lose(place, "its lane died twice")

    def _give_another_chance(self, place: str) -> None:
        self._failures[place] += 1
        if self._failures[place] < _FAILURES and self._blocks.left():
            self._work.hands.say(f"{place}: tried once more")
            self._blocks.regain(place)
            self._ask(place)

    def _left_something(self, place: str) -> bool:
        """Whether a place has a block that it did not finish."""
        note = self._blocks.note()
        return any(note.taken.get(block) == place for block in self._blocks.left())

    def _idle(self) -> str | None:
        """A place that this process should work on now: the first, else one that nobody began on."""
        lost, busy = self._blocks.note().lost, lanes(self._work.run.path)
        now = time.monotonic()
        for place in self._places:
            waits = place in self._asked and now - self._asked[place] < _TO_BEGIN_S
            out = waits or place in lost or place in busy
            if not out and self._blocks.has_some_for(place):
                return place
        return None

    def _work_at(self, place: str) -> bool:
        """Whether this process got to work on a place."""
        if place in self._asked:
            self._crew.cancel(place)
            del self._asked[place]
        try:
            with self._slots(place), lane(self._work.run.path, place):
                done = work_lane(self._work, place, lambda: self._tend(place))
        except (TimeoutError, RunHeld):
            return False
        if done.lost is not None:
            self._work.hands.say(f"{place} is given up: {done.lost}")
            self._give_another_chance(place)
        return True

    def _anybody(self) -> bool:
        """Whether some lane may still take or give back a block."""
        return bool(self._asked) or bool(lanes(self._work.run.path))

    def _see_them_off(self) -> None:
        """Lanes that have nothing to take any more let go of their hosts by themselves."""
        deadline = time.monotonic() + _TO_BEGIN_S
        for place in self._asked:
            while self._crew.at_its_place(place) and time.monotonic() < deadline:
                time.sleep(_PAUSE_S / 4)


def whole_blocks(question: Question, records: Iterable[TrialRecord]) -> list[int]:
    """Blocks of which every trial has a result that stands."""
    final = {record.trial for record in records if is_final(record)}
    blocks = blocks_of(question.plan.trials).items()
    return [block for block, trials in blocks if all(trial.id in final for trial in trials)]
