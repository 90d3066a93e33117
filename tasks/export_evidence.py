"""The evidence of an exported setting, as lines for the comments of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.decision import PLAIN_NAMES, decision_sentence, interval, percent, users
from tasks.export_shell import apply_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from configs.sweep import Sweep
    from tasks.comparison import Comparison
    from tasks.export_choice import Chosen
    from tasks.export_plan import Deployment


def evidence_lines(
    sweep: Sweep,
    comparison: Comparison,
    chosen: Chosen,
    plan: Deployment,
    *,
    folder: str,
    link: str | None,
    table: Sequence[str],
) -> list[str]:
    """What is claimed of the setting, by which figures, from which run, on what.

    Args:
        sweep: As it was run.
        comparison: Its verdicts.
        chosen: The setting.
        plan: What is started.
        folder: The run folder.
        link: Of the trial in MLflow; None where it is not known.
        table: The lines on draft steps by batch.
    """
    record = chosen.record
    return [
        f"{chosen.label}: exported by eagle3-sweep from sweep {sweep.name}",
        f"Question: {sweep.question}",
        f"Verdict: {decision_sentence(comparison)}.",
        _standing(sweep, chosen),
        *_figures(comparison, chosen),
        "",
        f"Run: {comparison.sweep_runs[0] if comparison.sweep_runs else record.sweep_run}, {folder}",
        f"As in trial {record.trial}, attempt {record.attempt}, {record.started_at}",
        f"MLflow: {link or 'not known here (the trial was not published)'}",
        *_ground(chosen, plan),
        "",
        *_patches(chosen, plan),
        *(f"Tolerated: {f.name} at {f.where}: {f.tolerated}" for f in record.findings),
        *table,
    ]


def _standing(sweep: Sweep, chosen: Chosen) -> str:
    if chosen.won:
        return "This is the setting that the verdict names."
    if chosen.arm == sweep.baseline:
        return "This is the baseline; it was asked for by name."
    return "This is NOT the setting that the verdict names; it was asked for by name."


def _figures(comparison: Comparison, chosen: Chosen) -> Iterator[str]:
    if not chosen.cells:
        return
    level = f"{100 * comparison.confidence:.3g} %"
    yield f"Against the baseline on the same host, all intervals of the sweep together at {level}:"
    for c in chosen.cells:
        yield (
            f"  {c.probe}, {users(c.concurrency)}: {percent(c.ratio)} {interval(c)} "
            f"{PLAIN_NAMES[c.metric]}, {c.verdict}, {_blocks(c.blocks)}"
        )


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def _ground(chosen: Chosen, plan: Deployment) -> Iterator[str]:
    record = chosen.record
    versions = ", ".join(
        f"{name} {version}"
        for name, version in sorted(record.versions.items())
        if name not in {"eagle3_sweep", "controller_python"}
    )
    gpus = record.must_match.get("gpus")
    yield f"Host: {record.host}, {record.host_class}" + (f", {gpus}" if gpus else "")
    yield f"Engine: {plan.engine} {plan.version or 'of unknown release'} (all versions: {versions})"
    for role, path in zip(("Target", "Drafter"), plan.folders, strict=False):
        content = record.models.get(role.lower())
        yield f"{role}: {path}, content {content or 'not identified'}"
    if plan.engine == "vllm":
        yield "Left out: VLLM_SERVER_DEV_MODE, by which a sweep empties the cache between probes"


def _patches(chosen: Chosen, plan: Deployment) -> Iterator[str]:
    """Which source the setting ran on."""
    for patch in plan.patches:
        yield (
            f"Ran on patched source: {patch.outcome.name} on {patch.outcome.path} "
            f"({patch.outcome.reason}). To apply it, in this folder:"
        )
        yield f"  {apply_line(patch)}"
    needed = {patch.outcome.name for patch in plan.patches}
    for outcome in chosen.record.patches:
        if outcome.name not in needed:
            yield f"Patch {outcome.name} changed nothing: {outcome.reason}"
