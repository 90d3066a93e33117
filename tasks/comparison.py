"""What a comparison says: the values that the report, the terminal table and MLflow show."""

from __future__ import annotations

from typing import Literal

from configs.values import Value
from tasks.host_values import HostsCompared
from tasks.level_values import Interaction, LevelEffect
from tasks.record import Finding, KindAcceptance
from tasks.what_if_answers import WhatIf

# Schema history of comparison.json:
# 1 - first shape.
# 2 - alone_low, alone_high; intervals in accounts and crossovers; outliers; looks.
# 3 - synthetic, what_if.
# 4 - between_hosts, classes; hosts and further_hosts of a cell.
SCHEMA = 4

Verdict = Literal["better", "worse", "same", "undecided"]


class Cell(Value):
    """One ratio: a setting against its reference, for one figure, probe and concurrency."""

    contrast: Literal["arm", "factor", "copy"]
    """arm: against the baseline arm at the same levels; factor: against the factor's first level
    within the same arm; copy: against the arm that it replicates."""
    factor: str | None
    """The factor whose level differs; None for arm against arm."""
    metric: str
    """A name of tasks/metrics.py; of a time, its median."""
    probe: str
    concurrency: int
    arm: str
    levels: dict[str, str]
    reference_arm: str
    reference_levels: dict[str, str]
    blocks: int
    """Blocks that hold both settings."""
    hosts: int = 1
    """Hosts that these blocks ran on; with several, the interval is for all hosts of the kind."""
    value: float
    """Geometric mean over those blocks, in the metric's unit."""
    reference_value: float
    ratio: float
    """Value / reference, from the mean of the log ratios inside the blocks."""
    low: float | None
    """The interval's ends, as ratios; None with one block or a spread that allows no statement."""
    high: float | None
    confidence: float | None
    """Level of this interval after Holm's correction over the whole comparison."""
    alone_low: float | None = None
    """The interval of this ratio alone, at the comparison's confidence: it covers the truth that
    often, but of many such intervals some miss it."""
    alone_high: float | None = None
    p: float | None
    """Two-sided, not corrected."""
    verdict: Verdict
    why: str
    """The verdict in words."""
    further_blocks: int | None
    """Undecided: further blocks on the same hosts that would decide, as things stand; None when
    none would, or when the spread is not known. Decided: 0."""
    further_hosts: int | None = None
    """Undecided, on several hosts: further hosts, with as many blocks each, that would decide; None
    when none would. Decided: 0."""
    detectable: float | None
    """Smallest ratio above 1 that four of five sweeps like this one would find; None: unknown."""
    own_noise: bool
    """These two settings were clearly noisier than the rest, which widened the interval."""


class Standing(Value):
    """Absolute figures of a setting at one concurrency: medians over its ok trials."""

    probe: str
    concurrency: int
    arm: str
    levels: dict[str, str]
    baseline: bool
    blocks: int
    output_tok_s: float | None
    """Tokens/s of the server."""
    user_tok_s: float | None
    """Tokens/s that one user sees."""
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    step_s: float | None
    accept_length: float | None
    """Tokens per verify step, all blocks' steps together."""
    accept_at_k: tuple[float, ...] | None
    """Share of steps that accepted at least k drafts, mean over blocks."""
    parts: tuple[KindAcceptance, ...]
    """Acceptance by kind of text and by half of the output, blocks added up."""


class SpeedAccount(Value):
    """Why a user's speed changed: log speed ratio = log accept ratio - log step ratio."""

    probe: str
    concurrency: int
    arm: str
    levels: dict[str, str]
    reference_arm: str
    reference_levels: dict[str, str]
    blocks: int
    user_ratio: float
    """Speed of one user against the reference."""
    accept_ratio: float
    """What acceptance alone would give."""
    accept_low: float | None = None
    """Interval of the accept ratio alone, at the comparison's confidence; None: spread unknown."""
    accept_high: float | None = None
    step_ratio: float
    """How much longer one step takes."""
    step_low: float | None = None
    """Interval of the step ratio alone."""
    step_high: float | None = None
    step_s: float
    reference_step_s: float
    accept_length: float
    """Geometric mean over the blocks."""
    break_even_accept_length: float
    """Accept length at which this step time would give the reference's speed."""
    break_even_low: float | None = None
    break_even_high: float | None = None


class Crossover(Value):
    """Where, between two measured concurrencies, a ratio to the baseline passes 1."""

    metric: str
    probe: str
    arm: str
    levels: dict[str, str]
    concurrency: float
    """Interpolated: log ratio against log concurrency."""
    below: int
    """Measured concurrency before it."""
    above: int
    direction: Literal["falls", "rises"]
    """falls: better below, worse above."""
    firm: bool
    """Both sides have a decided cell; else the place is a best guess."""
    low: float | None = None
    """Where the interval of the ratio alone begins to hold 1, on the same straight lines; None:
    below the measured ladder."""
    high: float | None = None
    """Where it ceases to; None: above the measured ladder."""


class SameOutputs(Value):
    """How many answers equal the baseline's, token by token (telling at temperature 0 only)."""

    probe: str
    concurrency: int
    arm: str
    levels: dict[str, str]
    equal: int
    compared: int


class Difference(Value):
    """A fact that two trials should share and do not."""

    fact: str
    expected: str | None
    """None: the fact is absent there."""
    found: str | None


class Refusal(Value):
    """A trial that is ok and still may not be compared."""

    trial: str
    arm: str
    levels: dict[str, str]
    block: int
    host: str
    against: str
    """The trial that stands for the others."""
    differences: tuple[Difference, ...]


class Outlier(Value):
    """An ok boot that is left out of all ratios, because it fell out of line as a whole."""

    trial: str
    arm: str
    levels: dict[str, str]
    block: int
    host: str
    effect: float
    """Ratio of its leading figure to what its setting and its block say, over the ladder."""
    p: float
    """Chance of such a boot among all boots of a night without any outlier."""


class Excluded(Value):
    """A trial without a speed, and why."""

    trial: str
    attempt: int
    arm: str
    levels: dict[str, str]
    block: int
    host: str
    status: Literal["ok", "suspect", "failed", "skipped"]
    why: str


class Comparison(Value):
    """All verdicts of a sweep, or why there are none."""

    schema_version: int = SCHEMA
    sweeps: tuple[str, ...]
    sweep_runs: tuple[str, ...]
    rehearsal: bool
    """True: no claim about any GPU."""
    synthetic: tuple[str, ...] = ()
    """What was made up in the trials that entered: "dummy weights", "simulated acceptance"; then
    no ratio is a claim about a drafter."""
    host_class: str | None
    classes: tuple[str, ...] = ()
    """All classes of hosts that the sweep ran on, where there are several: each has a comparison
    of its own, and this is the one of ``host_class``."""
    hosts: tuple[str, ...]
    baseline: str | None
    """Name of the baseline arm."""
    metrics: tuple[str, ...]
    """The first one leads."""
    same_margin: float
    confidence: float
    """Of all verdicts together."""
    looks: int = 1
    """How often the sweep might have looked and stopped; the price is in the confidence."""
    family: int
    """How many ratios were tested together."""
    trials: int
    """Ok trials that entered."""
    problem: str | None
    """Why nothing can be said at all; None when something can."""
    cells: tuple[Cell, ...]
    standings: tuple[Standing, ...]
    accounts: tuple[SpeedAccount, ...]
    crossovers: tuple[Crossover, ...]
    same_outputs: tuple[SameOutputs, ...]
    refusals: tuple[Refusal, ...]
    excluded: tuple[Excluded, ...]
    outliers: tuple[Outlier, ...] = ()
    effects: tuple[LevelEffect, ...] = ()
    """What each factor level does within its arm, by figure, probe and concurrency."""
    interactions: tuple[Interaction, ...] = ()
    """Whether a level does the same for an arm as for the baseline."""
    findings: tuple[Finding, ...] = ()
    """What no single trial can show (tasks/level_findings)."""
    between_hosts: HostsCompared | None = None
    """Whether the hosts agree; None on a single one."""
    what_if: WhatIf | None = None
    """Answers from pretended acceptance; None where nothing was pretended."""
    notes: tuple[str, ...]


def levels_key(levels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Levels as a key, in whatever order the factors came."""
    return tuple(sorted(levels.items()))


def setting_label(arm: str, levels: dict[str, str]) -> str:
    """An arm with its levels, factors by name: ``eagle3-b, attention=triton, nccl=ll``."""
    return ", ".join([arm, *(f"{factor}={level}" for factor, level in sorted(levels.items()))])
