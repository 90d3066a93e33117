"""Keeps what a trial is doing at this moment where another process can see it: see flows.watch."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from infra.store import DiskFull, note_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.stages import Runner
    from infra.store import TrialFolder
    from tasks.record import StageTime

T = TypeVar("T")

_PAUSE_S = 0.5  # nobody looks more often


class NotingRunner:
    """Another runner, whose stages and words are noted in the attempt's folder too."""

    def __init__(self, runner: Runner, folder: TrialFolder) -> None:
        self._runner = runner
        self._folder = folder
        self._stage = ""
        self._since = ""
        self._noted = 0.0

    @property
    def times(self) -> list[StageTime]:
        """See flows.stages.Runner."""
        return self._runner.times

    def run(self, name: str, work: Callable[[], T]) -> T:
        """See flows.stages.Runner."""
        self._stage, self._since = name, datetime.now(UTC).isoformat()
        self._note("")
        return self._runner.run(name, work)

    def say(self, text: str) -> None:
        """See flows.stages.Runner."""
        self._runner.say(text)
        if time.monotonic() - self._noted > _PAUSE_S:
            self._note(text)

    def _note(self, text: str) -> None:
        self._noted = time.monotonic()
        said = {"stage": self._stage, "since": self._since, "text": text}
        # What is only looked at never ends a trial.
        with suppress(DiskFull, OSError):
            note_json(self._folder.now, said)
