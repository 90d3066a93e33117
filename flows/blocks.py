"""Which place takes which block of a run, where several are at work on it at once.

A block is taken whole and stays with its place, so that ratios are made inside one host. Only a
place that is lost gives its blocks back; whoever takes one of them runs all of it again. Places of
unlike host classes keep to the blocks that the plan gives their class, so that each class has a
comparison of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from configs.host_classes import place_classes
from configs.plan import blocks_of
from configs.values import Value
from infra.run_locks import turn
from infra.store import write_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from configs.plan import Plan, Trial
    from flows.question import Question
    from infra.store import RunFolder

FILE: Final = "blocks.json"


class Note(Value):
    """What the places of a run have to tell each other."""

    taken: dict[int, str] = {}
    """Block -> the place that took it last, in this run's present process or in an earlier one."""
    over: tuple[int, ...] = ()
    """Blocks that were gone through since the present process began."""
    lost: dict[str, str] = {}
    """Place -> why it was given up."""
    whole: tuple[int, ...] = ()
    """Blocks of which every trial had its result as the present process began: if their place is
    lost now, they are not run again elsewhere."""
    cut_off: tuple[str, ...] = ()
    """Markers of attempts that could not tear down."""
    began: datetime | None = None
    """When the sweep did: the flow run that conducts it, which may have gone on after a crash."""

    def is_over(self, block: int) -> bool:
        """Whether nobody need look at a block any more."""
        return block in self.over or (block in self.whole and self.taken.get(block) in self.lost)


class Blocks:
    """The blocks of one run; every process that works on it has its own view of the one note.

    Args:
        run: The run.
        plan: Its plan.
        classes: Place -> its host class.
    """

    def __init__(self, run: RunFolder, plan: Plan, classes: Mapping[str, str]) -> None:
        self._run = run
        self._path = run.path / FILE
        self._blocks = blocks_of(plan.trials)
        self._classes = classes

    def begin(
        self, whole: Sequence[int], cut_off: Sequence[str], began: datetime | None = None
    ) -> None:
        """A process goes on with the run: every block is looked at again, by the place that has it.

        Args:
            whole: See :class:`Note`.
            cut_off: See :class:`Note`.
            began: See :class:`Note`; None: now.
        """
        self._change(
            lambda note: Note(
                taken=note.taken,
                whole=tuple(whole),
                cut_off=tuple(cut_off),
                began=began or datetime.now(UTC),
            )
        )

    def take(self, place: str) -> int | None:
        """The next block for a place: one that it has begun, else the first that is free."""
        with turn(self._path):
            note = self.note()
            block = self._next(note, place)
            if block is not None:
                self._write(note.model_copy(update={"taken": note.taken | {block: place}}))
        return block

    def has_some_for(self, place: str) -> bool:
        """Whether :meth:`take` would give this place something now."""
        return self._next(self.note(), place) is not None

    def finish(self, block: int) -> None:
        """A block is over."""
        self._change(lambda note: note.model_copy(update={"over": (*note.over, block)}))

    def lose(self, place: str, why: str) -> None:
        """A place is given up for this run; its blocks are free for others."""
        self._change(lambda note: note.model_copy(update={"lost": note.lost | {place: why}}))

    def regain(self, place: str) -> None:
        """A place is tried once more."""
        self._change(
            lambda note: note.model_copy(
                update={"lost": {one: why for one, why in note.lost.items() if one != place}}
            )
        )

    def left(self) -> list[int]:
        """Blocks that are not over."""
        note = self.note()
        return [block for block in self._blocks if not note.is_over(block)]

    def trials(self, block: int, place: str) -> list[Trial]:
        """The trials of a block, at the place that takes it."""
        return [trial.model_copy(update={"host": place}) for trial in self._blocks[block]]

    def words(self) -> tuple[str, ...]:
        """What became of the places, where it is not what was planned; a sentence each."""
        note, left = self.note(), self.left()
        said = [f"{place} was given up: {why}." for place, why in note.lost.items()]
        if left:
            blocks = ", ".join(map(str, left))
            said.append(f"No host was left for block{'s' if len(left) > 1 else ''} {blocks}.")
        return tuple(said)

    def note(self) -> Note:
        """As it is now."""
        return read_note(self._run)

    def _next(self, note: Note, place: str) -> int | None:
        free: int | None = None
        for block, trials in self._blocks.items():
            holder = note.taken.get(block)
            if note.is_over(block) or self._classes[trials[0].host] != self._classes[place]:
                continue
            if holder == place:
                return block
            if free is None and (holder is None or holder in note.lost):
                free = block
        return free

    def _change(self, to: Callable[[Note], Note]) -> None:
        with turn(self._path):
            self._write(to(self.note()))

    def _write(self, note: Note) -> None:
        write_value(self._path, note)


def read_note(run: RunFolder) -> Note:
    """What the places of a run told each other; nothing where there is one place alone."""
    try:
        return Note.model_validate_json((run.path / FILE).read_bytes())
    except FileNotFoundError:
        return Note()


def classes_of(question: Question) -> dict[str, str]:
    """Place -> its host class, which its leading node says."""
    return place_classes(question.plan.trials, question.hosts)
