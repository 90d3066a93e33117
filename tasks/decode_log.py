"""Decode statistics from an engine's log: acceptance, throughput, and what disturbs them."""

from __future__ import annotations

import re

from tasks.decode_lines import (
    DecodeSample,
    DraftCounts,
    PrefillSample,
    Retraction,
    read_statistics,
)
from tasks.decode_summary import DecodeSetting, DecodeSummary, DroppedSample
from tasks.decode_sums import Gathered, summarize
from tasks.log_lines import LogLine, LogReader, seconds_between

_IDLE_GAP_S = 3.0
_MAX_SAMPLES = 100_000
_MAX_LISTED = 100
_AFTER_IDLE = "first interval after idle"
_LONG_GAP_S = 10.0
_DRAFT_TOKENS = re.compile(r"speculative_num_draft_tokens'?(?:=|: ?)(\d{1,4})\b")
_TOPK = re.compile(r"speculative_eagle_topk'?(?:=|: ?)(\d{1,4})\b")


class DecodeLog:
    """Collects the statistics lines of a log that arrives in chunks.

    Memory is bounded by `_MAX_SAMPLES` intervals (a week at one line per six seconds).
    """

    def __init__(self, setting: DecodeSetting | None = None) -> None:
        """Begin with nothing read.

        Args:
            setting: What is known of the server; what it leaves out is taken from the server's
                arguments, if the log holds them.
        """
        self._setting = setting or DecodeSetting()
        self._reader = LogReader()
        self._used: list[DecodeSample] = []
        self._counts: list[DraftCounts] = []
        self._dropped: list[DroppedSample] = []
        self._seen = 0
        self._retractions = 0
        self._speakers: dict[str, str] = {}
        self._last: dict[str, str | None] = {}
        self._idle: dict[str, bool] = {}
        self._before: dict[str, DecodeSample] = {}

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the log."""
        for line in self._reader.feed(chunk):
            self._line(line)

    def finish(self) -> DecodeSummary:
        """Take the last line and sum up."""
        for line in self._reader.finish():
            self._line(line)
        return self.summary()

    def summary(self) -> DecodeSummary:
        """Sum up what was read so far."""
        return summarize(
            Gathered(self._used, self._counts, tuple(self._dropped), self._seen, self._retractions),
            self._setting,
        )

    def _line(self, line: LogLine) -> None:
        statistics = read_statistics(line)
        match statistics:
            case DecodeSample():
                self._decode(statistics)
            case PrefillSample(group=group, stamp=stamp, running=running):
                if running == 0 and self._was_idle(group, stamp):
                    self._idle[group] = True
                self._last[group] = stamp
            case DraftCounts():
                if len(self._counts) < _MAX_SAMPLES:
                    self._counts.append(statistics)
            case Retraction():
                self._retractions += 1
            case None:
                if line.text.startswith("server_args="):
                    self._arguments(line.text)

    def _was_idle(self, group: str, stamp: str | None) -> bool:
        """Tell whether nothing ran for a while before this prefill."""
        if group not in self._last:
            return not self._setting.busy_before
        gap = seconds_between(self._last[group], stamp)
        return gap is not None and gap >= _IDLE_GAP_S

    def _decode(self, sample: DecodeSample) -> None:
        # Several tensor-parallel ranks may print the same batch; one speaks for its group.
        if self._speakers.setdefault(sample.group, sample.source) != sample.source:
            return
        self._seen += 1
        if sample.by_clock and sample.running == 0:
            self._drop(sample, "nothing ran")
        elif not sample.by_clock and self._after_idle(sample):
            self._drop(sample, _AFTER_IDLE)
        elif len(self._used) < _MAX_SAMPLES:
            self._used.append(sample)
            self._before[sample.group] = sample
        self._last[sample.group] = sample.stamp

    def _after_idle(self, sample: DecodeSample) -> bool:
        """Tell whether the interval holds idle time: sglang divides by all time since the last."""
        if self._idle.pop(sample.group, False):
            return True
        if sample.group not in self._last:
            return not self._setting.busy_before
        before = self._before.get(sample.group)
        gap = seconds_between(self._last[sample.group], sample.stamp)
        if before is None or gap is None or gap < _LONG_GAP_S:
            return False
        return (sample.gen_throughput or 0.0) * 2 < (before.gen_throughput or 0.0)

    def _drop(self, sample: DecodeSample, reason: str) -> None:
        if len(self._dropped) < _MAX_LISTED:
            self._dropped.append(DroppedSample(gen_throughput=sample.gen_throughput, reason=reason))

    def _arguments(self, text: str) -> None:
        found = {
            name: int(match[1])
            for name, pattern in (("num_draft_tokens", _DRAFT_TOKENS), ("topk", _TOPK))
            if getattr(self._setting, name) is None and (match := pattern.search(text))
        }
        self._setting = self._setting.model_copy(update=found)


def read_decode_log(log: bytes, setting: DecodeSetting | None = None) -> DecodeSummary:
    """Read a whole log, or the part that a probe wrote; see `DecodeLog`."""
    reader = DecodeLog(setting)
    reader.feed(log)
    return reader.finish()
