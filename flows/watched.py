"""What is seen of a run from beside: its folder alone, read again and again."""

from __future__ import annotations

import os
import statistics
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from flows.blocks import read_note
from flows.done import Done, done_of, seconds_of
from flows.runs import read_run_plan, read_run_sweep
from infra.store import read_json
from tasks.live import Live, LiveLog
from tasks.record import TrialRecord

if TYPE_CHECKING:
    from infra.store import RunFolder, TrialFolder

_MOST_AT_ONCE = 4 << 20  # of a log that somebody begins to watch late


class Doing(NamedTuple):
    """A trial in flight."""

    trial: str
    host: str
    stage: str
    text: str
    """What the stage said last."""
    seconds: float
    """In this stage."""
    live: Live

    @property
    def decodes(self) -> bool:
        """Whether there is traffic; else the log's last figures are old."""
        return self.stage.startswith(("warm_up", "probe:"))


class View(NamedTuple):
    """A run at one moment."""

    run: str
    question: str
    planned: int
    done: tuple[Done, ...]
    """In the order in which they ended."""
    doing: tuple[Doing, ...]
    """One for each place that is at work."""
    waiting: tuple[str, ...]
    """Trials without a record, in the plan's order, without those in flight."""
    conductor: int | None
    """The process that works on the run; None: nobody does."""
    left_s: float | None
    """Seconds until the last trial is over, by the median of those that are; None: unknown."""


class Watched:
    """One run; every look reads only what is new."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._sweep = read_run_sweep(run)
        self._trials = {trial.id: trial for trial in read_run_plan(run).trials}
        self._records: dict[str, TrialRecord] = {}
        self._logs: dict[str, tuple[LiveLog, int]] = {}
        """Attempt in flight -> its log, and how much of it is read."""

    def look(self) -> View:
        """The run as it is now."""
        open_still: list[TrialFolder] = []
        for folder in self._run.trials():
            name = folder.path.name
            if name in self._records:
                continue
            try:
                record = TrialRecord.model_validate_json(folder.record.read_bytes())
            except FileNotFoundError:
                open_still.append(folder)
                continue
            self._records[name] = record
        last = {record.trial: record for record in self._records.values()}
        conductor = _alive(read_json(self._run.path / "run.json").get("pid"))
        found = map(self._doing, open_still if conductor else [])
        doing = tuple(sorted(found, key=lambda one: one.host))
        self._logs = {
            folder.path.name: self._logs[folder.path.name] for folder in open_still if doing
        }
        over = {*last, *(one.trial for one in doing)}
        waiting = tuple(trial for trial in self._trials if trial not in over)
        done = sorted(last.values(), key=lambda record: record.ended_at)
        return View(
            run=self._run.id,
            question=self._sweep.question,
            planned=len(self._trials),
            done=tuple(map(done_of, done)),
            doing=doing,
            waiting=waiting,
            conductor=conductor,
            left_s=_left(done, len(waiting), len(doing)),
        )

    def _doing(self, folder: TrialFolder) -> Doing:
        said = read_json(folder.now)
        since = said.get("since")
        planned = self._trials[folder.trial]
        return Doing(
            trial=folder.trial,
            host=read_note(self._run).taken.get(planned.block, planned.host),
            stage=str(said.get("stage", "")),
            text=str(said.get("text", "")),
            seconds=_since(since) if since else 0.0,
            live=self._live(folder),
        )

    def _live(self, folder: TrialFolder) -> Live:
        log, offset = self._logs.get(folder.path.name, (LiveLog(), 0))
        with suppress(FileNotFoundError), (folder.path / "server.log").open("rb") as file:
            file.seek(offset)
            chunk = file.read(_MOST_AT_ONCE)
            log.feed(chunk)
            offset += len(chunk)
        self._logs[folder.path.name] = (log, offset)
        return log.now()


def _left(done: list[TrialRecord], waiting: int, doing: int) -> float | None:
    """By the median trial that was measured; what those in flight have used is not known exactly."""
    took = [seconds_of(record) for record in done if record.status in {"ok", "suspect"}]
    if not took:
        return None
    return statistics.median(took) * (waiting / max(doing, 1) + (0.5 if doing else 0))


def _since(stamp: str) -> float:
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())


def _alive(pid: object) -> int | None:
    """The process, if it runs on this machine."""
    if not isinstance(pid, int):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return pid
    return pid
