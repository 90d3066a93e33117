"""The answers of a sweep with pretended acceptance, as values."""

from __future__ import annotations

from configs.values import Value
from tasks.step_cost import StepCost


class Shape(Value):
    """Arms that differ in nothing but the accept length that they pretend."""

    arms: tuple[str, ...]
    levels: dict[str, str]
    drafts: int | None
    """Drafts that a verify step can accept at most (K); None where it is not known."""
    tokens: int | None
    """Tokens that a verify step looks at."""
    lengths: tuple[float, ...]
    """The accept lengths that were pretended."""


class Needed(Value):
    """How good a drafter must be to pay."""

    probe: str
    concurrency: int
    metric: str
    shape: Shape
    reference: str
    """The arm that it must beat."""
    blocks: int
    accept_length: float | None
    """From here on it pays; None: whatever it accepts, this shape never does."""
    low: float | None = None
    """Interval over blocks; None with one block."""
    high: float | None = None


class Expected(Value):
    """What a drafter with a given accept length would give."""

    name: str
    accept_length: float
    probe: str
    concurrency: int
    metric: str
    shape: Shape
    reference: str
    blocks: int
    value: float
    """In the metric's unit."""
    ratio: float
    """To the reference in the same blocks."""
    low: float | None
    high: float | None


class WhatIf(Value):
    """All answers of a sweep with pretended acceptance."""

    needed: tuple[Needed, ...]
    expected: tuple[Expected, ...]
    costs: tuple[StepCost, ...]
    notes: tuple[str, ...] = ()
