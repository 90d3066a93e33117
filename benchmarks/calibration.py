"""How often verdicts err: simulated nights through the real planner, measure and compare.

    make calibrate [SEED=1] [N=1000]

No server runs: each boot's speed is drawn, its requests are written as samples, and from there on
everything is the product's own code. Writes docs/evidence/calibration.md and fails when a limit
is not kept.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from configs.plan import make_plan
from configs.sweep import Sweep
from tasks.measure import measure
from tasks.record import Sample
from tasks.record_trial import bare_record
from tasks.reporting import compare_sweep
from tasks.stopping import enough_known

if TYPE_CHECKING:
    from collections.abc import Iterable

    from configs.plan import Trial
    from tasks.comparison import Cell, Comparison
    from tasks.record import TrialRecord

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "calibration.md"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GAIN = 0.05
TOKENS = 128
CHUNKS = 8


class Noise(NamedTuple):
    """What makes two boots of one setting differ; shares of the speed."""

    between: float
    """From boot to boot (standard deviation)."""
    within: float
    """From measurement to measurement of one boot."""
    request: float
    """From request to request."""
    drift: float
    """Slope over the night (standard deviation over nights)."""
    outliers: float
    """Share of boots that are slow as a whole ..."""
    slow: tuple[float, float] = (0.05, 0.15)
    """... by between this and this."""


# At one user: sqrt(1.7^2 + 0.8^2 + (2/sqrt(8))^2) = 2.0 %.
USUAL = Noise(between=0.017, within=0.008, request=0.02, drift=0.02, outliers=0.05)
CLEAN = USUAL._replace(outliers=0.0)
QUIET = Noise(between=0.0085, within=0.004, request=0.01, drift=0.01, outliers=0.05)


class Scene(NamedTuple):
    """One kind of night."""

    name: str
    noise: Noise
    arms: int = 4
    blocks: int | None = None
    """None: what a sweep does that says nothing."""
    gain: float = 0.0
    """Of the first arm beside the baseline; all others are copies of it."""
    until: bool = False


class Night(NamedTuple):
    """What a night's verdicts were worth."""

    wrong: bool
    """Any better or worse that is not so, on any figure."""
    found: bool
    """The faster arm is better on the leading figure at one concurrency at least."""
    found_share: float
    """Of the concurrencies at which it is."""
    covered: float
    """Share of the leading figure's own intervals that hold the truth."""
    together: bool
    """All intervals in the table of verdicts hold it at once."""
    blocks: int
    left_out: int
    confidence: float
    """At which intervals are drawn: 95 %, or a look's."""


SCENES = (
    Scene("nothing differs", USUAL),
    Scene("one arm is 5 % faster", USUAL, gain=GAIN),
    Scene("nothing differs, no outliers", CLEAN),
    Scene("one arm is 5 % faster, no outliers", CLEAN, gain=GAIN),
    Scene("nothing differs, half the noise, 4 blocks", QUIET, blocks=4),
    Scene("one arm is 5 % faster, half the noise, 4 blocks", QUIET, blocks=4, gain=GAIN),
    Scene("nothing differs, two arms", USUAL, arms=2),
    Scene("nothing differs, half the noise, until within 3 %", QUIET, until=True),
    Scene("one arm is 5 % faster, half the noise, until within 3 %", QUIET, gain=GAIN, until=True),
)


def sweep_of(scene: Scene, seed: int) -> Sweep:
    """The question of one night."""
    names = ["base", *(f"arm-{n}" for n in range(1, scene.arms))]
    repeats = {} if scene.blocks is None else {"blocks": scene.blocks}
    return Sweep.model_validate(
        {
            "name": "simulated",
            "question": "How often does a verdict err?",
            "hosts": ("nowhere",),
            "engine": {"model": "/none"},
            "baseline": "base",
            "arms": {name: {} for name in names},
            "probes": {"load": {"prompts": "mixed", "concurrency": (1, 4, 16)}},
            "seed": seed,
            "until": {"half_width": 0.03} if scene.until else None,
            **repeats,
        }
    )


def night(scene: Scene, seed: int) -> Night:
    """One simulated night, from its plan to its verdicts."""
    draw = np.random.default_rng(seed)
    sweep = sweep_of(scene, seed)
    plan = make_plan(sweep)
    slope = draw.normal(0, scene.noise.drift)
    records: list[TrialRecord] = []
    for trial in plan.trials:
        boundary = trial.block - 1
        if (
            sweep.until
            and sweep.until.half_width
            and boundary >= sweep.until.min_blocks
            and records[-1].block == boundary
            and enough_known(compare_sweep(sweep, records), sweep.until.half_width)
        ):
            break
        hour = trial.order / len(plan.trials)
        records.append(boot(sweep, trial, scene, slope * hour, draw))
    return judged(compare_sweep(sweep, records), scene, records[-1].block)


def boot(
    sweep: Sweep, trial: Trial, scene: Scene, drift: float, draw: np.random.Generator
) -> TrialRecord:
    """One trial: a speed of its own, and the measurements that its requests make."""
    noise = scene.noise
    log_speed = drift + draw.normal(0, noise.between)
    if draw.random() < noise.outliers:
        log_speed += math.log1p(-draw.uniform(*noise.slow))
    if trial.arm == "arm-1":
        log_speed += math.log1p(scene.gain)
    measurements = []
    for concurrency in sweep.probes["load"].concurrency:
        speed = math.exp(log_speed + draw.normal(0, noise.within))
        samples = requests(concurrency, speed, noise.request, draw)
        measurements.append(measure(samples, "load", concurrency, speculating=False))
    seen = bare_record(sweep, trial, "night", 1, NOW)
    return seen.model_copy(update={"status": "ok", "measurements": tuple(measurements)})


def requests(
    concurrency: int, speed: float, spread: float, draw: np.random.Generator
) -> list[Sample]:
    """A closed loop; 100 tokens/s for one user, less for more, all times divided by the speed."""
    per_slot = max(3, math.ceil(8 / concurrency))
    pace = 100 / (1 + 0.02 * concurrency)
    samples = []
    for slot in range(concurrency):
        at = 0.0
        for turn in range(per_slot):
            own = speed * math.exp(draw.normal(0, spread))
            first = at + 0.05 / own
            ends = [
                (first + part / CHUNKS * (TOKENS - 1) / pace / own, part * TOKENS // CHUNKS)
                for part in range(1, CHUNKS + 1)
            ]
            samples.append(sample(f"{slot}.{turn}", at, first, ((first, 1), *ends)))
            at = ends[-1][0]
    return samples


def sample(name: str, sent: float, first: float, chunks: tuple[tuple[float, int], ...]) -> Sample:
    """A request that went well."""
    return Sample.model_construct(
        id=name,
        kind="prose",
        sent_s=sent,
        first_s=first,
        last_s=chunks[-1][0],
        done_s=chunks[-1][0],
        prompt_tokens=40,
        completion_tokens=TOKENS,
        cached_tokens=0,
        verify_steps=None,
        accepted=None,
        proposed=None,
        histogram=None,
        retractions=0,
        finish="length",
        chunks=chunks,
        output_sha=None,
        unique_ngram_ratio=0.9,
        error=None,
    )


def judged(comparison: Comparison, scene: Scene, blocks: int) -> Night:
    """The verdicts beside the truth."""
    lead = [c for c in comparison.cells if c.metric == comparison.metrics[0]]
    faster = [c for c in lead if c.arm == "arm-1"] if scene.gain else []
    return Night(
        wrong=any(c.verdict in wrong_verdicts(truth(c, scene)) for c in comparison.cells),
        found=any(c.verdict == "better" for c in faster),
        found_share=fmean(c.verdict == "better" for c in faster) if faster else math.nan,
        covered=fmean(holds(c.alone_low, c.alone_high, truth(c, scene)) for c in lead),
        together=all(holds(c.low, c.high, truth(c, scene)) for c in lead),
        blocks=blocks,
        left_out=len(comparison.outliers),
        confidence=comparison.confidence,
    )


def truth(cell: Cell, scene: Scene) -> float:
    return 1 + scene.gain if cell.arm == "arm-1" else 1.0


def wrong_verdicts(ratio: float) -> tuple[str, ...]:
    return ("worse",) if ratio > 1 else ("better", "worse")


def holds(low: float | None, high: float | None, ratio: float) -> bool:
    return low is not None and high is not None and low <= ratio <= high


def nights(scene: Scene, seeds: Iterable[int]) -> list[Night]:
    return [night(scene, seed) for seed in seeds]


class Tally(NamedTuple):
    """Shares over all nights of a scene."""

    nights: int
    wrong: float
    found: float
    found_share: float
    covered: float
    together: float
    blocks: float
    left_out: float
    confidence: float


def tally(seen: list[Night]) -> Tally:
    return Tally(
        len(seen), *(fmean(getattr(n, field) for n in seen) for field in Tally._fields[1:])
    )


def broken(scene: Scene, found: Tally) -> list[str]:
    """Limits that this scene does not keep; the power is promised for the defaults alone."""
    said = []
    if found.wrong > 0.05:
        said.append(f"{scene.name}: {found.wrong:.1%} of nights hold a wrong verdict")
    if abs(found.covered - found.confidence) > 0.02:
        said.append(f"{scene.name}: intervals hold the truth in {found.covered:.1%}")
    if scene in SCENES[:4] and scene.gain and found.found < 0.8:
        said.append(f"{scene.name}: found in {found.found:.1%}")
    return said


TEXT = """\
# How often verdicts err

Simulated nights through the real planner, `measure` and `compare` (`benchmarks/calibration.py`); the figures of each row are shares of {nights} nights.

    make calibrate SEED={seed} N={nights}

Each night: {arms} arms unless the row says two, {blocks} blocks (the default) unless it says otherwise, the ladder 1, 4, 16, two figures with verdicts.
Noise of the usual kind, as shares of the speed: {usual.between:.1%} between boots, {usual.within:.1%} between measurements of a boot, {usual.request:.0%} between requests (together 2 % at one user), a slope of {usual.drift:.0%} (sd) over the night, and one boot in twenty slower by {usual.slow[0]:.0%} to {usual.slow[1]:.0%} as a whole. *Half the noise* halves all but the outliers.

- *wrong*: nights with any `better` or `worse` that is not so, on any figure, arm and concurrency (promised: at most 5 %).
- *found*: nights in which the arm that is 5 % faster is `better` on the leading figure at one concurrency at least, which is what the sentence on top goes by (promised: at least 80 % at the defaults); behind it the share of single concurrencies.
- *covers*: intervals of a ratio alone that hold the truth (promised: 93 to 97 %; with `until` they are drawn at {looks:.1%}, the price of six looks, and 2 % either way of that is promised).
- *all at once*: nights in which every interval in the table of verdicts holds it.

| night | wrong | found | covers | all at once | blocks | boots left out |
|---|---|---|---|---|---|---|
{rows}

Took {minutes:.0f} minutes.
"""


def page(rows: list[tuple[Scene, Tally]], seed: int, seconds: float) -> str:
    """The evidence."""
    return TEXT.format(
        nights=rows[0][1].nights,
        seed=seed,
        arms=SCENES[0].arms,
        blocks=Sweep.model_fields["blocks"].default,
        usual=USUAL,
        looks=rows[-1][1].confidence,
        rows="\n".join(row(scene, found) for scene, found in rows),
        minutes=seconds / 60,
    )


def row(scene: Scene, found: Tally) -> str:
    """One line of the table."""
    power = f"{found.found:.1%} ({found.found_share:.0%})" if scene.gain else "-"
    return (
        f"| {scene.name} | {found.wrong:.1%} | {power} | {found.covered:.1%} "
        f"| {found.together:.1%} | {found.blocks:.1f} | {found.left_out:.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nights", type=int, default=1000)
    asked = parser.parse_args()
    began, rows, complaints = time.monotonic(), [], []
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        for index, scene in enumerate(SCENES):
            first = (asked.seed * len(SCENES) + index) * 1_000_003
            shares = [range(first + w, first + asked.nights, workers) for w in range(workers)]
            seen = [n for part in pool.map(nights, [scene] * workers, shares) for n in part]
            found = tally(seen)
            rows.append((scene, found))
            complaints += broken(scene, found)
            print(scene.name, found, flush=True)
    text = page(rows, asked.seed, time.monotonic() - began)
    print(text)
    for said in complaints:
        print(f"limit not kept: {said}", file=sys.stderr)
    if not complaints:
        PAGE.write_text(text, encoding="utf-8")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
