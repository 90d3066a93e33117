"""Eight arms with known truth, at four concurrencies, over two blocks: measured against told.

    make eight-arms          # about ten minutes on two quiet cores

Runs a sweep on a rehearsal host of its own, over SSH, and writes docs/evidence/eight-arms.md.
Fails when a figure is further from the truth than 1 % and outside its interval over blocks, or
when a verdict contradicts the truth.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.rehearsal_truth import arm_of
from configs.sweep import Sweep
from infra.rehearsal.forecast import forecast
from tasks.intervals import t_quantile
from tasks.reporting import compare_sweep
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.rehearsal.forecast import Forecast
    from tasks.comparison import Cell, Comparison
    from tasks.record import Measurement, TrialRecord

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "eight-arms.md"
TIME_SCALE = 2.0
NEAR = 0.01
MARGIN = 0.02
BLOCKS = 2
TOKENS = 96
USERS = (1, 8, 32, 64)
PROBE = "load"


def chained(drafter: str, steps: int) -> dict[str, object]:
    """Drafts in a chain of so many steps."""
    return {
        "kind": "eagle3",
        "drafter": f"data/eagle3/{drafter}",
        "num_steps": steps,
        "topk": 1,
        "draft_tokens": steps + 1,
    }


ARMS: dict[str, dict[str, object]] = {
    "base": {"kind": "off"},
    "medai": chained("aq-medai-k2-drafter", 3),
    "medai-1": chained("aq-medai-k2-drafter", 1),
    "custom": chained("k25-custom", 3),
    "tuned": chained("k25-tuned", 3),
    "tuned-1": chained("k25-tuned", 1),
    "tuned-2": chained("k25-tuned", 2),
    "tuned-5": chained("k25-tuned", 5),
}


class Line(NamedTuple):
    """One figure of one arm at one concurrency."""

    arm: str
    users: int
    figure: str
    seen: float
    true: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return self.seen / self.true - 1

    @property
    def right(self) -> bool:
        return abs(self.error) <= NEAR or self.low <= self.true <= self.high


def question() -> Sweep:
    """The sweep that is run."""
    return Sweep.model_validate(
        {
            "name": "eight-arms",
            "question": "Do the measured figures agree with the rehearsal's own truth?",
            "hosts": ("box",),
            "engine": {
                "model": "shared/kimi-k2.5-int4",
                "flags": {
                    "tp-size": 8,
                    "mem-fraction-static": 0.85,
                    "trust-remote-code": True,
                    "max-running-requests": 64,
                    "cuda-graph-max-bs": 64,
                    "stream-interval": 4,
                },
            },
            "patches": ("kimi_k25_eagle3",),
            "baseline": "base",
            "arms": {name: {"speculation": speculation} for name, speculation in ARMS.items()},
            "probes": {
                PROBE: {
                    "prompts": "mixed",
                    "concurrency": USERS,
                    "requests_per_slot": 3,
                    "min_requests": 16,
                    "sampling": {"max_new_tokens": TOKENS, "ignore_eos": True},
                    "template": {"kind": "none"},
                    "warm_up": {
                        "per_slot": 2,
                        "max_new_tokens": 24,
                        "tolerance": 0.3,
                    },
                }
            },
            "blocks": BLOCKS,
            "same_margin": MARGIN,
            "patience": {"start_s": 60.0, "silence_s": 30.0, "stop_s": 3.0, "gpu_free_s": 10.0},
        }
    )


def over_blocks(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, -math.inf, math.inf
    half = t_quantile(0.975, len(values) - 1) * statistics.stdev(values)
    half /= math.sqrt(len(values))
    return mean, mean - half, mean + half


def of_steps(shares: Sequence[float], steps: Sequence[int]) -> tuple[float, float, float]:
    """Mean share and 95 % interval over the verify steps of one block: the others repeat it."""
    mean = statistics.fmean(shares)
    half = 1.96 * math.sqrt(mean * (1 - mean) / max(1, min(steps)))
    return mean, mean - half, mean + half


def figures(measured: Measurement) -> dict[str, float]:
    found = {
        "output_tok_s": measured.output_tok_s,
        "user_tok_s": measured.user_tok_s,
        "accept_length": measured.accept_length,
        "step_s": measured.step_s,
    }
    for k, share in enumerate(measured.accept_at_k or (), start=1):
        found[f"accepted >= {k}"] = share
    return {name: value for name, value in found.items() if value is not None}


def told(wanted: Forecast) -> dict[str, float]:
    found = {
        "output_tok_s": wanted.output_tok_s,
        "user_tok_s": wanted.user_tok_s,
        "accept_length": wanted.accept_length,
        "step_s": wanted.accept_length / wanted.user_tok_s,
    }
    for k, share in enumerate(wanted.accept_at, start=1):
        found[f"accepted >= {k}"] = share
    return found


def stated(comparison: Comparison) -> dict[tuple[str, int, str], tuple[float, float]]:
    """The intervals that the report draws: of each ratio, times the baseline's speed."""
    return {
        (c.arm, c.concurrency, c.metric): (c.low * c.reference_value, c.high * c.reference_value)
        for c in comparison.cells
        if c.contrast == "arm" and c.low is not None and c.high is not None
    }


def lines(sweep: Sweep, records: Sequence[TrialRecord], comparison: Comparison) -> list[Line]:
    """Every figure beside its truth."""
    found = []
    drawn = stated(comparison)
    for name, arm in sweep.arms.items():
        for users in USERS:
            requests = sweep.probes[PROBE].requests(users)
            truth = told(forecast(arm_of(arm.speculation), users, TOKENS, requests))
            measured = [
                m
                for r in records
                if r.arm == name and r.status == "ok"
                for m in r.measurements
                if m.concurrency == users
            ]
            steps = [m.verify_steps or 0 for m in measured]
            for figure, true in truth.items():
                values = [each[figure] for each in map(figures, measured) if figure in each]
                if not values:
                    continue
                of = of_steps(values, steps) if figure[:8] == "accepted" else over_blocks(values)
                low, high = drawn.get((name, users, figure), of[1:])
                found.append(Line(name, users, figure, of[0], true, low, high))
    return found


def contradicts(cell: Cell, ratio: float) -> bool:
    """Whether a verdict is not what the true ratio asks for."""
    match cell.verdict:
        case "better":
            return ratio <= 1
        case "worse":
            return ratio >= 1
        case "same":
            return abs(ratio - 1) > MARGIN
    return abs(math.log(ratio)) > 2 * math.log1p(MARGIN)


def main() -> int:
    sweep = question()
    with tempfile.TemporaryDirectory() as folder:
        knobs = {"time_scale": TIME_SCALE, "noise_cv": 0.003}
        with sweeping.ground(Path(folder), **knobs) as ground:
            outcome = ground.run(sweep, hear=lambda text: print(text, flush=True))
    records = outcome.records
    comparison = compare_sweep(sweep, records)
    all_lines = lines(sweep, records, comparison)
    wrong = [line for line in all_lines if not line.right]
    true = {(line.arm, line.users, line.figure): line.true for line in all_lines}
    cells = [c for c in comparison.cells if c.contrast == "arm"]
    verdicts = [
        (c, true[c.arm, c.concurrency, c.metric] / true["base", c.concurrency, c.metric])
        for c in cells
    ]
    bad = [(cell, ratio) for cell, ratio in verdicts if contradicts(cell, ratio)]
    text = page(outcome.counts().text(), all_lines, verdicts, wrong, bad)
    print(text)
    if wrong or bad or not all_lines:
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page(
    counts: str,
    all_lines: list[Line],
    verdicts: list[tuple[Cell, float]],
    wrong: list[Line],
    bad: list[tuple[Cell, float]],
) -> str:
    worst = {
        name: max((abs(line.error) for line in all_lines if line.figure == name), default=0.0)
        for name in dict.fromkeys(line.figure for line in all_lines)
    }
    outside = [line for line in all_lines if abs(line.error) > NEAR]
    text = [
        "# Eight arms against the rehearsal's truth",
        "",
        "    make eight-arms",
        "",
        f"{counts}; {BLOCKS} blocks, {TOKENS} tokens an answer, time scale {TIME_SCALE:g}.",
        "Truth: the rehearsal's rules played through for exactly these requests with a client",
        "that needs no time (`infra/rehearsal/forecast.py`), without the boots' noise of 0.3 %.",
        "Intervals: of speeds those that the report draws (the verdict's, times the baseline's",
        "speed); of accept length and step 95 % over the blocks; of shares 95 % over the verify",
        "steps of one block, since the same prompts make the same steps in each.",
        "",
        f"{len(all_lines)} figures, {len(outside)} of them further than 1 % from the truth,",
        f"{len(wrong)} of these outside their interval.",
        f"{len(verdicts)} verdicts, {len(bad)} of them wrong.",
        "",
        "| figure | largest error |",
        "| --- | --- |",
        *(f"| {name} | {error:.2%} |" for name, error in worst.items()),
        "",
        "## Verdicts",
        "",
        "| arm | users | figure | true ratio | measured | interval | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {c.arm} | {c.concurrency} | {c.metric} | {ratio:.3f} | {c.ratio:.3f} "
            f"| [{c.low or math.nan:.3f}, {c.high or math.nan:.3f}] | {c.verdict} |"
            for c, ratio in verdicts
        ),
        "",
        "## Figures",
        "",
        "| arm | users | figure | truth | measured | error | interval holds the truth |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {line.arm} | {line.users} | {line.figure} | {line.true:.4g} | {line.seen:.4g} "
            f"| {line.error:+.2%} | {'yes' if line.low <= line.true <= line.high else 'no'} |"
            for line in all_lines
        ),
        "",
    ]
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
