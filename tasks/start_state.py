"""What a start log has said so far, and how its lines move the stage."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tasks.log_lines import seconds_between

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.log_lines import LogLine
    from tasks.start_facts import Framework

FLOAT = r"(\d{1,12}(?:\.\d{1,12})?)"
INTEGER = r"(\d{1,15})"
TOKENS = r"(\d[\d,]{0,20})"
"""Numbers as the engines print them, bounded so that no garbage breaks their reading."""

_VLLM_STAGES = (
    "arguments",
    "starting",
    "distributed_init",
    "target_weights",
    "draft_load",
    "after_target_weights",
    "kernel_compile",
    "kv_cache",
    "graph_capture",
    "http_start",
)
_MAX_WARNINGS = 32
_MAX_MODULES = 64
_MAX_SOURCES = 4096


@dataclass
class RankSteps:
    """How far one rank has come.

    `leads` counts the stage-moving lines of a rank: a slower rank's line must not set the
    stage back, and releases order their stages differently, so no fixed order would do.
    """

    leads: int = 0
    loads_begun: int = 0
    loads_ended: int = 0
    pools: int = 0


@dataclass
class StartState:
    """Everything that a start log has said so far."""

    framework: Framework | None = None
    stage: str = "arguments"
    stage_started_at: str | None = None
    stage_s: dict[str, float] = field(default_factory=dict)
    leads: int = 0
    ranks: dict[str, RankSteps] = field(default_factory=dict)
    percent: int | None = None
    bar_elapsed_s: float | None = None
    before_compile: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    captures: dict[str, float] = field(default_factory=dict)
    draft_path_known: bool = False
    speculative: bool = False
    broken_modules: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    http_at: str | None = None

    def rank(self, source: str) -> RankSteps:
        """Return the steps of one rank."""
        if len(self.ranks) > _MAX_SOURCES:
            self.ranks.clear()
        return self.ranks.setdefault(source, RankSteps())

    def enter(self, stage: str, stamp: str | None) -> None:
        """Begin a stage and close the one before."""
        if stage == self.stage or self.stage in ("serving", "stopping"):
            return
        spent = seconds_between(self.stage_started_at, stamp)
        if spent is not None:
            self.stage_s[self.stage] = self.stage_s.get(self.stage, 0.0) + spent
        self.stage, self.stage_started_at = stage, stamp or self.stage_started_at
        self.percent = self.bar_elapsed_s = None

    def move(self, stage: str, line: LogLine) -> None:
        """Follow the rank that is furthest (sglang), or a fixed order (vLLM)."""
        if self.framework == "vllm":
            if _order(stage) >= _order(self.stage):
                self.enter(stage, line.stamp)
            return
        steps = self.rank(line.source)
        steps.leads += 1
        if steps.leads > self.leads:
            self.leads = steps.leads
            self.enter(stage, line.stamp)

    def first(self, name: str, value: object) -> None:
        """Note a fact unless it is known."""
        self.facts.setdefault(name, value)

    def most(self, name: str, value: float) -> None:
        """Note the largest value over ranks."""
        known = self.facts.get(name)
        if not isinstance(known, (int, float)) or value > known:
            self.facts[name] = value

    def warn(self, text: str) -> None:
        """Note a warning once."""
        if text not in self.warnings and len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(text)


Act: TypeAlias = "Callable[[StartState, re.Match[str], LogLine], None]"
"""What a meaningful line does to the state."""


class Event(NamedTuple):
    """A record that begins with `head` and matches `pattern`, and what it does."""

    head: str
    pattern: re.Pattern[str]
    act: Act


def event(head: str, rest: str, act: Act) -> Event:
    """Make an event: a plain head, which is cheap to test, and a pattern for what follows."""
    return Event(head, re.compile(re.escape(head) + rest), act)


def bar_stage(text: str, state: StartState) -> str | None:
    """Name the stage that a progress bar belongs to; None for a bar without a name."""
    if "hards" in text and "oading" in text:
        return state.stage if "load" in state.stage else "target_weights"
    if "DeepGEMM" in text:
        return "kernel_compile"
    if "Capturing" in text:
        return state.stage if "capture" in state.stage else "graph_capture"
    return None


def _order(stage: str) -> int:
    return _VLLM_STAGES.index(stage) if stage in _VLLM_STAGES else len(_VLLM_STAGES)
