"""When a sweep ends before its last block, as its ``until`` says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from configs.plan import blocks_of
from tasks.reporting import compare_sweep
from tasks.stopping import enough_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from configs.plan import Trial
    from configs.sweep import Until
    from flows.question import Question
    from tasks.record import TrialRecord


class Halt:
    """Looks once for each number of blocks that are over; what was decided stays decided.

    The blocks that are over become more and never fewer, also where several places work on them at
    once: so their number says which they are, and looks of several places are one row of looks.
    """

    def __init__(self, question: Question) -> None:
        self._sweep = question.sweep
        self._blocks = blocks_of(question.plan.trials)
        self._began = time.monotonic()
        self._looked = 0
        self._stopped: str | None = None

    def why(self, trial: Trial, records: Mapping[str, TrialRecord]) -> str | None:
        """Why the sweep ends before this trial; None: it goes on.

        Args:
            trial: The next one.
            records: Of the sweep so far, by trial.
        """
        until = self._sweep.until
        if until is None or self._stopped is not None:
            return self._stopped
        if until.hours is not None and time.monotonic() - self._began > until.hours * 3600:
            self._stopped = f"the {until.hours:g} hours are over"
        elif until.half_width:
            self._look(self._over(trial.block, records), records, until)
        return self._stopped

    def _over(self, before: int, records: Mapping[str, TrialRecord]) -> set[int]:
        """Blocks before one of which every trial has a record; others may be in work elsewhere."""
        return {
            block
            for block, trials in self._blocks.items()
            if block < before and all(trial.id in records for trial in trials)
        }

    def _look(self, over: set[int], records: Mapping[str, TrialRecord], until: Until) -> None:
        count = len(over)
        if until.half_width is None or count < until.min_blocks or count <= self._looked:
            return
        self._looked = count
        so_far = [record for record in records.values() if record.block in over]
        known = enough_known(compare_sweep(self._sweep, so_far), until.half_width)
        self._stopped = known and f"enough is known after {count} blocks: {known}"
