"""The number of draft steps (K) by batch size, where a sweep measured several; and how engines read it.

Formats: SGLang's ``srt/speculative/adaptive_spec_params.py`` of 0.5.11 to 0.5.23 (one list of steps
for all batches up to 0.5.12; from 0.5.13 a list for each batch size, of which the nearest one below
the running batch counts; 0 steps from 0.5.14); vLLM's ``v1/spec_decode/dynamic/utils.py`` of 0.26.0
and 0.33.0, absent in 0.18.1 (inclusive ranges, the first from 1).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, assert_never

from configs.flags import flag_value, whole_flag
from configs.layers import arm_flags, engine_of
from configs.speculation import Eagle, Eagle3, Off
from configs.version import is_version, within
from configs.vllm import vllm_speculation
from tasks.decision import interval, leading_cells, percent, users

if TYPE_CHECKING:
    from collections.abc import Sequence

    from configs.sweep import Arm, Sweep
    from tasks.comparison import Cell, Comparison
    from tasks.export_choice import Chosen


class Row(NamedTuple):
    """The number of steps from one batch size on."""

    batch: int
    steps: int
    why: str


class KByBatch(NamedTuple):
    """A table, and the file that an engine reads; or why there is none."""

    rows: tuple[Row, ...]
    file: str | None
    """Name of the file; None where the engine reads none."""
    text: str
    """What it holds."""
    said: tuple[str, ...]
    """How to use it, or why there is none, in sentences."""


def k_by_batch(sweep: Sweep, comparison: Comparison, chosen: Chosen) -> KByBatch:
    """The table of the chosen arm's drafter, in the form that its engine and release read.

    At each measured number of users it holds the fastest of the step counts that are better than
    no speculation there, else 0. Whether one step count differs from another was not tested.
    """
    rows = _rows(sweep, comparison, chosen)
    if isinstance(rows, str):
        return KByBatch((), None, "", (f"No table of K by batch: {rows}.",))
    engine = engine_of(sweep, chosen.arm)
    version = chosen.record.versions.get(engine.kind)
    if version is not None and not is_version(version):
        return KByBatch(rows, None, "", (f"No file for it: {version!r} is no release.",))
    match engine.kind:
        case "sglang":
            return _for_sglang(sweep, chosen, rows, version)
        case "vllm":
            return _for_vllm(sweep, chosen, rows, version)
        case _:
            assert_never(engine.kind)


def _rows(sweep: Sweep, comparison: Comparison, chosen: Chosen) -> tuple[Row, ...] | str:
    """The measured table, or why there is none."""
    arm = sweep.arms[chosen.arm]
    way = arm.speculation
    if not isinstance(way, Eagle3 | Eagle):
        return f"{chosen.arm} does not draft with an EAGLE drafter, and no engine switches others"
    if way.adaptive is not None:
        return f"{chosen.arm} changes its steps by itself already"
    if way.topk != 1:
        return f"{chosen.arm} does not draft a chain with a given number of steps (topk: 1)"
    if not isinstance(sweep.arms[sweep.baseline].speculation, Off):
        return f"the baseline {sweep.baseline} speculates, so that 0 steps were not measured"
    if engine_of(sweep, sweep.baseline) != engine_of(sweep, chosen.arm):
        return f"the baseline {sweep.baseline} runs on another engine"
    steps = {name: _steps(other) for name, other in sweep.arms.items() if _alike(other, arm)}
    cells = [
        c
        for c in leading_cells(comparison)
        if c.arm in steps and c.levels == chosen.levels and c.reference_levels == chosen.levels
    ]
    if not cells:
        return "no ratio of its arms to the baseline was measured"
    ladder = [c for c in cells if c.probe == cells[0].probe]
    whole = {
        users_
        for users_ in {c.concurrency for c in ladder}
        if {c.arm for c in ladder if c.concurrency == users_} == {c.arm for c in ladder}
    }
    rows = tuple(
        _row(at, [c for c in ladder if c.concurrency == at], steps) for at in sorted(whole)
    )
    tried = ", ".join(str(n) for n in sorted(set(steps.values())))
    if not any(row.steps for row in rows):
        return f"no number of steps ({tried}) is better than no speculation at any measured batch"
    if len({row.steps for row in rows}) < 2:
        best = rows[0].steps
        return f"of {tried} steps, {best} are best at every measured batch: nothing to switch"
    return rows


def _steps(arm: Arm) -> int:
    way = arm.speculation
    return way.num_steps or 0 if isinstance(way, Eagle3 | Eagle) else 0


def _alike(other: Arm, arm: Arm) -> bool:
    """Whether two arms differ in their number of steps alone."""
    mine, its = arm.speculation, other.speculation
    if not isinstance(mine, Eagle3 | Eagle) or not isinstance(its, type(mine)):
        return False
    numbers = {"num_steps": mine.num_steps, "draft_tokens": mine.draft_tokens}
    same = {"speculation": its.model_copy(update=numbers), "note": "", "replicate_of": None}
    return other.replicate_of is None and other.model_copy(update=same) == arm.model_copy(
        update={"note": "", "replicate_of": None}
    )


def _row(batch: int, cells: Sequence[Cell], steps: dict[str, int]) -> Row:
    better = [c for c in cells if c.verdict == "better"]
    if not better:
        said = ", ".join(f"{steps[c.arm]} steps {c.verdict} ({percent(c.ratio)})" for c in cells)
        return Row(batch, 0, f"nothing is better than no speculation: {said}")
    # All stand against the same baseline: the one with the largest effect is the fastest.
    best = max(better, key=lambda c: abs(c.ratio - 1))
    return Row(batch, steps[best.arm], f"{percent(best.ratio)} {interval(best)}")


def table_lines(table: KByBatch) -> list[str]:
    """The table and its use as lines of a comment."""
    if not table.rows:
        return list(table.said)
    lines = ["Draft steps (K) by batch, as measured (running requests = users of the probe):"]
    lines += [f"  from {users(row.batch)}: {row.steps} ({row.why})" for row in table.rows]
    return [*lines, *table.said]


def _for_sglang(
    sweep: Sweep, chosen: Chosen, rows: tuple[Row, ...], version: str | None
) -> KByBatch:
    flags = arm_flags(sweep, chosen.arm, chosen.levels)
    reason = None
    if version is None:
        reason = "the trial does not say which SGLang it was"
    elif within(version, "<0.5.11"):
        reason = f"SGLang {version} changes no steps while it runs (0.5.11 is the first that does)"
    elif within(version, "<0.5.13"):
        reason = (
            f"SGLang {version} reads one list of steps for all batches (by batch from 0.5.13 on)"
        )
    elif within(version, "<0.5.14") and any(row.steps == 0 for row in rows):
        reason = f"SGLang {version} cannot stop drafting at a batch size (0.5.14 is the first)"
    elif flag_value(flags, "enable-dp-attention") is True:
        reason = "SGLang changes no steps under DP attention"
    if reason is not None:
        return KByBatch(rows, None, "", (f"No file for it: {reason}.",))
    entries = {str(row.batch): {"candidate_steps": [row.steps]} for row in _merged(rows)}
    most = max(row.steps for row in rows)
    use = (
        f"adaptive.json holds it for SGLang {version}: start with --speculative-adaptive "
        f"--speculative-adaptive-config adaptive.json --speculative-num-steps {most} "
        f"--speculative-num-draft-tokens {most + 1}."
    )
    return KByBatch(rows, "adaptive.json", json.dumps(entries, indent=1) + "\n", (use, _UNTRIED))


_UNTRIED = (
    "Each row was measured with fixed steps; the switching itself was not: try it as an arm before "
    "you rely on it."
)


def _for_vllm(sweep: Sweep, chosen: Chosen, rows: tuple[Row, ...], version: str | None) -> KByBatch:
    flags = arm_flags(sweep, chosen.arm, chosen.levels)
    reason = None
    if version is None:
        reason = "the trial does not say which vLLM it was"
    elif within(version, "<0.26.0"):
        reason = f"vLLM {version} is not known to read one (0.18.1 does not, 0.26.0 does)"
    elif (whole_flag(flags, "data-parallel-size", "vllm") or 1) > 1:
        reason = "vLLM drops it under data parallelism"
    wanted = vllm_speculation(sweep.arms[chosen.arm].speculation)
    if reason is not None or wanted is None:
        return KByBatch(rows, None, "", (f"No file for it: {reason}.",))
    limit = whole_flag(flags, "max-num-seqs", "vllm")
    merged = _merged(rows)
    ends = [row.batch - 1 for row in merged[1:]] + [max(limit or 0, rows[-1].batch)]
    # The first range must begin at 1 (0.33.0 refuses any other).
    starts = [1, *(row.batch for row in merged[1:])]
    ranges = [[a, b, row.steps] for a, b, row in zip(starts, ends, merged, strict=True)]
    config = wanted.model_dump(exclude_none=True)
    config |= {
        "num_speculative_tokens": max(row.steps for row in rows),
        "num_speculative_tokens_per_batch_size": ranges,
    }
    use = (
        f"speculative-config.json holds it for vLLM {version}: pass its content as "
        "--speculative-config. Without VLLM_USE_V2_MODEL_RUNNER=1 vLLM then records CUDA graphs "
        "piece by piece, which the trials did not."
    )
    text = json.dumps(config, ensure_ascii=False, indent=1) + "\n"
    return KByBatch(rows, "speculative-config.json", text, (use, _UNTRIED))


def _merged(rows: Sequence[Row]) -> list[Row]:
    """Only the rows at which the number of steps changes."""
    return [row for i, row in enumerate(rows) if i == 0 or rows[i - 1].steps != row.steps]
