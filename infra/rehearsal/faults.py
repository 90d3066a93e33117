"""Faults on demand: what is planted in ``faults.json`` happens to the next engines, once each."""

from __future__ import annotations

import fcntl
import json
import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from infra.rehearsal.knobs import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "faults.json"
START_STAGES = (
    "arguments",
    "distributed_init",
    "target_weights",
    "kv_cache",
    "graph_capture",
    "draft_weights",
    "draft_graph_capture",
    "warmup",
)
RUN_STAGES = ("ready", "decode", "after_requests")
WHATS = ("die", "hang", "oom", "sigkill_scheduler", "no_tokens", "slow", "retract")
_ONLY_RUNNING = {"no_tokens", "slow", "retract"}


@dataclass(frozen=True)
class Fault:
    """One planned accident.

    Attributes:
        when: a start stage; ``ready`` (right after "fired up"); ``decode`` (the first decode
            step for a client's request); ``after_requests`` (once so many have finished).
        what: ``die`` with the stage's own error text, ``oom`` with CUDA's, ``hang``,
            ``sigkill_scheduler`` (no text at all), and while running also ``no_tokens``,
            ``slow`` and ``retract``.
        rank: which tensor-parallel rank; None means every rank for ``die`` and ``oom``, and
            rank 0 otherwise.
        trial: regular expression searched in the engine's ``EAGLE3_SWEEP_TRIAL``.
        arm: ``speculation``, ``no_speculation`` or a piece of the drafter's path.
        after_requests: finished client requests before ``decode`` or ``after_requests`` fires.
        factor: of ``slow``, on the step time.
        times: how many engines it happens to.
    """

    when: str
    what: str = "die"
    rank: int | None = None
    trial: str | None = None
    arm: str | None = None
    after_requests: int = 0
    factor: float = 3.0
    times: int = 1

    def __post_init__(self) -> None:
        if self.when not in START_STAGES + RUN_STAGES:
            raise ValueError(f"no stage {self.when!r}; one of {START_STAGES + RUN_STAGES}")
        if self.what not in WHATS:
            raise ValueError(f"no fault {self.what!r}; one of {WHATS}")
        if self.what in _ONLY_RUNNING and self.when in START_STAGES:
            raise ValueError(f"{self.what} happens while running, not at {self.when}")

    def meets(self, trial: str, drafter: str | None) -> bool:
        """Whether it is meant for an engine with this marker and drafter."""
        if self.trial is not None and re.search(self.trial, trial) is None:
            return False
        match self.arm:
            case None:
                return True
            case "speculation":
                return drafter is not None
            case "no_speculation":
                return drafter is None
            case piece:
                return drafter is not None and piece in drafter


def _parse(entry: dict[str, Any]) -> Fault:
    """Read one entry; ``{"after_requests": 5}`` alone, or as ``when``, names the moment too."""
    entry = dict(entry)
    moment = entry.get("when")
    if isinstance(moment, dict):
        entry.update(moment, when="after_requests")
    elif moment is None and "after_requests" in entry:
        entry["when"] = "after_requests"
    unknown = set(entry) - {field.name for field in fields(Fault)}
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)} in a fault")
    return Fault(**entry)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "faults.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(folder: Path) -> list[Fault]:
    """What is planned now.

    Raises:
        ValueError: an entry that names no known stage, fault or key.
    """
    path = folder / FILE
    return [_parse(entry) for entry in json.loads(path.read_text())] if path.exists() else []


def write(folder: Path, planned: list[Fault]) -> None:
    """Replace what is planned."""
    entries = [asdict(fault) for fault in planned]
    write_atomically(folder / FILE, json.dumps(entries, indent=2) + "\n")


def plant(folder: Path, *more: Fault) -> None:
    """Add to what is planned."""
    with _locked(folder):
        write(folder, [*read(folder), *more])


def peek(folder: Path, trial: str, drafter: str | None, stages: tuple[str, ...]) -> list[Fault]:
    """The faults at these stages that are meant for this engine, unconsumed."""
    return [f for f in read(folder) if f.when in stages and f.meets(trial, drafter)]


def take(folder: Path, trial: str, drafter: str | None, stage: str) -> Fault | None:
    """Consume one fault of a stage, if one is planned for this engine."""
    with _locked(folder):
        planned = read(folder)
        for position, fault in enumerate(planned):
            if fault.when == stage and fault.meets(trial, drafter):
                left = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                write(folder, planned[:position] + left + planned[position + 1 :])
                return fault
    return None
