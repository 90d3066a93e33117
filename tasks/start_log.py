"""An engine's start log, read as it grows: stage, progress, facts, readiness, first failure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tasks.failures import Scene, failure_of
from tasks.log_lines import LogLine, LogReader, seconds_between
from tasks.start_clues import REQUEST_LOG
from tasks.start_events import SGLANG_EVENTS
from tasks.start_events_vllm import VLLM_EVENTS
from tasks.start_facts import Framework, StartFacts
from tasks.start_state import StartState, bar_stage
from tasks.start_tracebacks import Setting, TracebackScan

if TYPE_CHECKING:
    from tasks.failures import Failure

SGLANG_READY = "The server is fired up and ready to roll!"
VLLM_READY = "Application startup complete."

_EVENTS = (*SGLANG_EVENTS, *VLLM_EVENTS)
_HEADS = tuple(event.head for event in _EVENTS if event.head)
_ANYWHERE = tuple(event for event in _EVENTS if not event.head)
_BATCH = ("Decode batch", "Prefill batch", "Engine 0", "Avg prompt throughput", "SpecDecoding")
# Where logs are appended to, the last start is the one that is asked about.
_BEGINNINGS = ("server_args=", "vLLM API server version")
_PERCENT = re.compile(r"(\d{1,3})%(?:\||\s+Completed)")
_ELAPSED = re.compile(r"\[(?:(\d{1,6}):)?(\d{1,3}):(\d\d)<")


class StartLog:
    """Reads the log of one start, in whatever pieces it arrives.

    Feed bytes, then ask for `facts()` or `progress()` as often as you like; call `finish()`
    when the process has ended or the log is at its end. However the bytes are cut, the facts
    are the same; memory is bounded, so the reader may follow a server for as long as it runs.
    In a log of several starts the last one counts.

    A failure may still be named more exactly by the lines that follow it: take it when
    `finish()` was called, or when it did not change for a second or two.
    """

    def __init__(
        self,
        framework: Framework | None = None,
        *,
        model_path: str | None = None,
        draft_path: str | None = None,
    ) -> None:
        """Begin with nothing read.

        Args:
            framework: The engine, if it is known; else its first lines tell.
            model_path: The target's path in the command; tells a missing target from a missing
                drafter when the engine dies before it prints its arguments.
            draft_path: The drafter's path in the command.
        """
        self._reader = LogReader()
        self._framework = framework
        self._asked = (model_path, draft_path)
        self._ended = self._torn = False
        self._exit_code: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._scan = TracebackScan()
        self._state = StartState(framework=self._framework)
        self._started_at: str | None = None
        self._last_stamp: str | None = None
        self._last_progress_at: str | None = None
        self._ready_at: str | None = None
        self._was_ready = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the log."""
        for line in self._reader.feed(chunk):
            self._line(line)

    def finish(self, *, ended: bool = True, exit_code: int | None = None) -> StartFacts:
        """Take the last line and return the facts.

        Args:
            ended: The process is gone; a server without a known cause has then `engine_dead`.
            exit_code: Its exit code, if known. 137 is how sglang ends after any failed start.
        """
        for line in self._reader.finish():
            self._torn = not line.bar
            self._line(line)
        self._ended = self._ended or ended
        self._exit_code = exit_code
        return self.facts()

    def progress(self) -> tuple[str, int | None]:
        """Return the stage and the percent of its progress bar, for display."""
        stage, percent = self._state.stage, self._state.percent
        for line in self._reader.pending():
            if line.bar:
                stage = self._bar_stage(line) or stage
                percent = _percent(line.text)
        return stage, percent

    def facts(self) -> StartFacts:
        """Return everything that is known so far."""
        state = self._state
        stage, percent = self.progress()
        failure = self._failure()
        known = state.facts | self._times()
        sizes = known.get("cuda_graph_bs")
        largest = max(sizes) if isinstance(sizes, tuple) and sizes else None
        return StartFacts.model_validate(
            known
            | {
                "framework": state.framework,
                "stage": stage if failure is None or failure.stage is None else failure.stage,
                "progress_percent": percent,
                "ready": self._ready_at is not None and failure is None and stage == "serving",
                "was_ready": self._was_ready,
                "needs_generate_probe": self._was_ready and state.framework == "vllm",
                "failure": failure,
                "warnings": (*state.warnings, *self._graph_warnings(largest)),
                "started_at": self._started_at,
                "ready_at": self._ready_at,
                "stage_started_at": state.stage_started_at,
                "last_progress_at": self._last_progress_at,
                "bar_elapsed_s": state.bar_elapsed_s,
                "stage_s": dict(state.stage_s),
                "cuda_graph_max_bs": largest,
                "undecodable_bytes": self._reader.undecodable_bytes,
                "log_complete": self._reader.cut_lines == 0 and not self._torn,
            }
        )

    def _line(self, line: LogLine) -> None:
        if line.framed and line.text.startswith(_BEGINNINGS) and self._is_over(line):
            self._begin()
        if line.stamp is not None:
            self._last_stamp = line.stamp
            self._started_at = self._started_at or line.stamp
        if line.framed and line.text.startswith(_BATCH):
            self._last_progress_at = line.stamp or self._last_progress_at
            return
        if line.bar:
            self._bar(line)
            return
        if self._scan.feed(line, self._setting()):
            self._events(line, failing=True)
            return
        if REQUEST_LOG.match(line.text):
            return
        self._events(line, failing=False)
        if line.stamp is not None and not self._was_ready and not line.text.startswith("Pyspy"):
            self._last_progress_at = line.stamp

    def _is_over(self, line: LogLine) -> bool:
        """Tell whether the start that was read so far has ended: then another one begins here."""
        served = self._was_ready and line.text.startswith(_BEGINNINGS[0])
        return served or self._scan.ended or self._scan.verdict() is not None

    def _setting(self) -> Setting:
        state = self._state
        asked_model, asked_draft = self._asked
        model, draft = state.facts.get("model_path"), state.facts.get("draft_path")
        scene = Scene(
            stage=state.stage,
            framework=state.framework,
            model_path=model if isinstance(model, str) else asked_model,
            draft_path=draft if isinstance(draft, str) else asked_draft,
            draft_path_known=state.draft_path_known,
            broken_modules=tuple(state.broken_modules),
        )
        return Setting(scene, self._was_ready, self._last_progress_at)

    def _events(self, line: LogLine, *, failing: bool) -> None:
        text = line.text
        if text == SGLANG_READY or (text == VLLM_READY and self._state.framework == "vllm"):
            if not failing:
                self._ready(line)
            return
        if text.startswith(_HEADS):
            for event in _EVENTS:
                if event.head and text.startswith(event.head):
                    found = event.pattern.match(text)
                    if found is not None:
                        event.act(self._state, found, line)
        elif not self._was_ready:
            for event in _ANYWHERE:
                found = event.pattern.match(text)
                if found is not None:
                    event.act(self._state, found, line)

    def _ready(self, line: LogLine) -> None:
        # sglang prints its ready line although the port was taken: its warm-up reached the
        # other server (sglang 0.5.12 log).
        if self._scan.verdict() is not None or self._was_ready:
            return
        self._state.enter("serving", line.stamp)
        self._was_ready = True
        self._ready_at = line.stamp or self._last_stamp

    def _bar(self, line: LogLine) -> None:
        state = self._state
        stage = self._bar_stage(line)
        if stage is not None and stage != state.stage:
            state.enter(stage, self._last_stamp)
        if state.stage == "serving":
            return
        state.percent = _percent(line.text)
        elapsed = _ELAPSED.search(line.text)
        if elapsed is not None:
            hours, minutes, seconds = (int(part or 0) for part in elapsed.groups())
            state.bar_elapsed_s = hours * 3600.0 + minutes * 60.0 + seconds

    def _bar_stage(self, line: LogLine) -> str | None:
        return None if self._was_ready else bar_stage(line.text, self._state)

    def _failure(self) -> Failure | None:
        failure = self._scan.verdict(ended=self._ended)
        if failure is None and self._ended:
            failure = failure_of("engine_dead")
        if failure is None:
            return None
        update: dict[str, object] = {}
        if failure.exit_code is None and self._exit_code is not None:
            update["exit_code"] = self._exit_code
        if failure.stage is None:
            update["stage"] = self._state.stage
        if failure.failure == "port_in_use" and failure.port is None:
            update["port"] = self._state.facts.get("port")
        return type(failure).model_validate(failure.model_dump() | update) if update else failure

    def _times(self) -> dict[str, object]:
        captures = self._state.captures
        target = [spent for kind, spent in captures.items() if "draft" not in kind]
        draft = [spent for kind, spent in captures.items() if "draft" in kind]
        return {
            "start_s": seconds_between(self._started_at, self._ready_at),
            "warmup_s": seconds_between(self._state.http_at, self._ready_at),
            "capture_s": sum(target) if target else None,
            "draft_capture_s": sum(draft) if draft else None,
        }

    def _graph_warnings(self, largest: int | None) -> list[str]:
        limit = self._state.facts.get("max_running_requests")
        if largest is None or limit is None or int(str(limit)) <= largest:
            return []
        return [f"cuda graphs captured only up to batch {largest}"]


def read_start(
    log: bytes, framework: Framework | None = None, *, ended: bool = False
) -> StartFacts:
    """Read a whole log at once; see `StartLog`."""
    reader = StartLog(framework)
    reader.feed(log)
    return reader.finish(ended=ended)


def _percent(text: str) -> int | None:
    shown = _PERCENT.findall(text)
    return min(100, int(shown[-1])) if shown else None
