"""Puts a screen together from what was timed and what the starts showed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from configs.flags import whole_flag
from configs.layers import arm_flags, reference_levels
from configs.plan import arm_env
from tasks.effective import setting_name
from tasks.factor_effect import Decode, Evidence, judge_variables
from tasks.reduce_path import ReducePath, Said, read_said, reduce_path
from tasks.screen import (
    LevelScreen,
    Screen,
    StartProof,
    TimedBy,
    choose,
    dominated,
    effect_findings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from configs.screening import Screening
    from configs.sweep import Sweep
    from tasks.nccl_log import NcclLog
    from tasks.screen_sizes import Sizes


_OFF = "disable_custom_all_reduce"


class Found(NamedTuple):
    """What was seen on the host."""

    sizes: Sizes
    tp: int
    result: Mapping[str, Any]
    """Of the collectives job."""
    levels: tuple[LevelScreen, ...]
    """With their times, before any judgement."""
    starts: Mapping[str, tuple[StartProof, list[str]]]
    """Level -> its start and the lines of its log."""
    versions: dict[str, str]
    host_env: Mapping[str, str]


def made_screen(sweep: Sweep, asked: Screening, found: Found) -> Screen:
    """The screen, but for where and when it was made (those fields are empty)."""
    factor = asked.factor
    reference = next(iter(sweep.factors[factor]))
    timed_by, note = timed_how(found.result)
    broken = next(one.error for one in found.levels if one.level == reference)
    if broken is not None:
        # What stops the reference is no level's fault.
        timed_by, note = "nothing", f"{reference} itself could not be timed: {broken}"
        bare = {"error": None, "times": ()}
        found = found._replace(levels=tuple(o.model_copy(update=bare) for o in found.levels))
    paths = {arm: arm_path(sweep, arm, reference, found) for arm in sweep.arms}
    levels = tuple(_judged(one, reference, sweep, paths, found) for one in found.levels)
    if timed_by == "nccl":
        beaten = dominated(levels, reference, sweep.same_margin)
        levels = tuple(
            one.model_copy(update={"dominated_by": beaten.get(one.level)}) for one in levels
        )
    kept, dropped = choose(levels, reference, asked.keep, timed_by=timed_by)
    return Screen(
        sweep=sweep.name,
        run="",
        key="",
        made_at="",
        host="",
        host_class="",
        rehearsal=False,
        factor=factor,
        reference=reference,
        keep=asked.keep,
        baseline=sweep.baseline,
        tp=found.tp,
        versions=found.versions,
        sizes=found.sizes,
        timed_by=timed_by,
        timed_note=note,
        levels=levels,
        paths=paths,
        findings=effect_findings(factor, [one for one in levels if one.level != reference]),
        kept=kept,
        dropped=dropped,
        notes=_notes(timed_by, asked, levels, paths, found.sizes),
    )


def timed_how(result: Mapping[str, Any]) -> tuple[TimedBy, str]:
    """What the times are of, in words."""
    if not result.get("available"):
        return "nothing", str(result.get("message", "nothing was timed"))
    how = "in CUDA graphs" if result.get("graphs") else "call by call"
    what = f"torch {result.get('torch')}, {result.get('device')}, {how}"
    if result.get("backend") == "nccl":
        return "nccl", f"torch.distributed over NCCL {result.get('nccl')} ({what})"
    return "gloo", f"gloo on CPUs, which takes none of NCCL's variables ({what})"


def arm_path(sweep: Sweep, arm: str, reference: str, found: Found) -> ReducePath:
    """What carries an arm's all-reduces: proven for the baseline that was started, else derived.

    The start of the baseline says what the machine can do; another arm's own flags are laid over
    its settings.
    """
    started = found.starts.get(reference) or next(iter(found.starts.values()), None)
    said = read_said(started[1]) if started else Said({}, None, v2_ready=False, no_fusion=False)
    flags = arm_flags(sweep, arm, reference_levels(sweep))
    asked = {setting_name(flag): str(value) for flag, value in flags.items()}
    proven = bool(said.settings) and arm == sweep.baseline
    tried = bool(said.settings) and said.settings.get(_OFF) != "True"
    if not proven:
        base = arm_flags(sweep, sweep.baseline, reference_levels(sweep))
        gone = {setting_name(flag) for flag in base} - asked.keys()
        settings = {k: v for k, v in said.settings.items() if k not in gone}
        said = said._replace(settings={**settings, **asked})
    path = reduce_path(
        said,
        {**found.host_env, **arm_env(sweep, arm, reference_levels(sweep))},
        version=found.versions.get("sglang"),
        tp=whole_flag(flags, "tp-size") or 1,
        row_bytes=found.sizes.row_bytes,
        proven=proven,
    )
    by_flags = {"nccl", "none"}.issuperset(path.kinds(found.sizes.bytes))
    return path.model_copy(update={"sure": tried or by_flags})


def _judged(
    one: LevelScreen,
    reference: str,
    sweep: Sweep,
    paths: Mapping[str, ReducePath],
    found: Found,
) -> LevelScreen:
    """A level with its start, and what became of its variables in every arm."""
    start = found.starts[one.level][0] if one.level in found.starts else None
    broken = one.error is not None or (start is not None and start.status == "failed")
    if one.level == reference or not one.env or broken:
        return one.model_copy(update={"start": start})
    first = next(level for level in found.levels if level.level == reference)
    first_start = found.starts[reference][0] if reference in found.starts else None
    here, there = _evidence(one, start, first, first_start)
    effects = {
        arm: judge_variables(one.env, here, there, Decode(paths[arm], found.sizes, found.tp))
        for arm in sweep.arms
    }
    return one.model_copy(update={"start": start, "effects": effects})


def _evidence(
    one: LevelScreen, start: StartProof | None, first: LevelScreen, first_start: StartProof | None
) -> tuple[Evidence, Evidence]:
    """NCCL's words under the level and the reference, of the same kind of process.

    The timed processes reduce at the sizes of decode, so their choices count where there are any;
    the engine's start is the proof of what was read.
    """
    seen = start.seen if start else None
    if one.nccl is not None and first.nccl is not None:
        return Evidence(one.nccl, seen), Evidence(first.nccl, None)
    mine: NcclLog | None = start.nccl if start else None
    theirs = first_start.nccl if first_start else None
    return Evidence(mine or one.nccl, seen), Evidence(theirs or first.nccl, None)


def _notes(
    timed_by: TimedBy,
    asked: Screening,
    levels: tuple[LevelScreen, ...],
    paths: Mapping[str, ReducePath],
    sizes: Sizes,
) -> tuple[str, ...]:
    notes = []
    if timed_by == "nothing":
        notes.append(f"nothing was timed: keep: {asked.keep} is not applied")
    elif timed_by == "gloo":
        notes.append(f"gloo ranks no NCCL setting: keep: {asked.keep} is not applied")
    own = [
        arm
        for arm, path in paths.items()
        if not any(kind.startswith("nccl") for kind in path.kinds(sizes.bytes))
    ]
    if timed_by == "nccl" and own:
        notes.append(
            f"the times are of NCCL's path alone, which decode does not take in {', '.join(own)}"
        )
    flagged = [one.level for one in levels if one.flags]
    if flagged:
        notes.append(
            f"{', '.join(flagged)} set flags of the engine, which timed all-reduces do not show"
        )
    return tuple(notes)
