"""An engine's log as somebody who looks on wants it: how far the start is, how fast it decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tasks.decode_lines import DecodeSample, DraftCounts, read_statistics
from tasks.log_lines import LogReader
from tasks.start_log import StartLog

if TYPE_CHECKING:
    from tasks.start_facts import Framework


class Live(NamedTuple):
    """What the log says at this moment."""

    stage: str
    """The start's stage, ``serving`` once it is ready."""
    percent: int | None
    """Of the stage's own progress bar."""
    tok_s: float | None
    """Generated tokens per second, as the engine last printed it, its ranks added up."""
    accept_length: float | None
    """Tokens per verify step, as the engine last printed it; the mean over its ranks."""
    running: int | None
    """Requests that ran then, all ranks."""


class LiveLog:
    """Reads a log that grows."""

    def __init__(self, framework: Framework | None = None) -> None:
        self._start = StartLog(framework)
        self._reader = LogReader()
        self._last: dict[str, DecodeSample] = {}
        self._lengths: dict[str, float] = {}

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes."""
        self._start.feed(chunk)
        for line in self._reader.feed(chunk):
            said = read_statistics(line)
            if isinstance(said, DecodeSample):
                self._last[said.group] = said
                if said.accept_length is not None:
                    self._lengths[said.group] = said.accept_length
            elif isinstance(said, DraftCounts) and said.printed_length is not None:
                self._lengths[""] = said.printed_length  # vLLM prints it for all engines at once

    def now(self) -> Live:
        """What is known so far."""
        stage, percent = self._start.progress()
        speeds = [one.gen_throughput for one in self._last.values()]
        running = [one.running for one in self._last.values()]
        return Live(
            stage=stage,
            percent=percent,
            tok_s=_sum(speeds),
            accept_length=_mean([*self._lengths.values()]),
            running=None if (users := _sum(running)) is None else int(users),
        )


def _sum(values: list[float | None] | list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
