"""Writes what a run says: comparison, figures and report, into the folder and into MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.communication import communication_factors
from configs.probe import rungs_of
from configs.values import Value
from infra.store import read_json, write_bytes, write_text, write_value
from infra.tracking import RunEntry, TrackingDown
from tasks.compare import compare
from tasks.comparison import Comparison
from tasks.decision import decision_sentence
from tasks.entry import latest_flow_url
from tasks.figures import draw_figures, draw_pictures
from tasks.inside_figure import inside_figures, inside_pictures
from tasks.looks import confidence_of_look
from tasks.markdown_text import inline
from tasks.publish import note_missed
from tasks.report import render_report
from tasks.report_page import render_page
from tasks.screen_kept import read_screen
from tasks.unmatched import unmatched_settings
from tasks.what_if import what_if

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from configs.sweep import Sweep
    from infra.store import RunFolder
    from infra.tracking import Tracker
    from tasks.record import TrialRecord
    from tasks.screen import Screen

PAGE = "report.html"
"""The report for people, in the run's folder ``report``."""


class Report(Value):
    """What a run says."""

    sweep: str
    sentence: str
    comparison: Comparison
    markdown: str
    folder: str
    mlflow_run: str | None
    """Id of the report's own run in MLflow."""


def compare_sweep(sweep: Sweep, records: Sequence[TrialRecord]) -> Comparison:
    """The comparison that a sweep asks for."""
    looks = sweep.until.looks if sweep.until else 1
    found = compare(
        records,
        same_margin=sweep.same_margin,
        confidence=confidence_of_look(looks),
        factors={name: list(levels) for name, levels in sweep.factors.items()},
        copies={name: arm.replicate_of for name, arm in sweep.arms.items() if arm.replicate_of},
        looks=looks,
        communication=communication_factors(sweep),
    )
    return found.model_copy(update={"what_if": what_if(records, sweep.what_if)})


def write_report(
    run: RunFolder,
    sweep: Sweep,
    records: Sequence[TrialRecord],
    tracker: Tracker | None,
    say: Callable[[str], None],
) -> Report:
    """Compares, draws, writes the report into the run folder, then into MLflow."""
    folder = run.path / "report"
    comparison, markdown = write_files(folder, sweep, records, read_screen(run.path))
    mlflow_run = None
    if tracker is not None:
        try:
            mlflow_run = publish_report(run, sweep, comparison, records, tracker)
        except TrackingDown as error:
            note_missed(run, tracker.uri)
            say(f"the report is not in MLflow yet: {error}")
    return Report(
        sweep=sweep.name,
        sentence=decision_sentence(comparison),
        comparison=comparison,
        markdown=markdown,
        folder=str(folder),
        mlflow_run=mlflow_run,
    )


def publish_report(
    run: RunFolder,
    sweep: Sweep,
    comparison: Comparison,
    records: Sequence[TrialRecord],
    tracker: Tracker,
    *,
    latest: bool = True,
) -> str:
    """Writes the report that stands in the run folder into MLflow; returns its run there.

    Args:
        run: The run.
        sweep: As it was then.
        comparison: What the report says.
        records: What it is of.
        tracker: The MLflow.
        latest: Whether the experiment's page shall show this run: not one that a later one followed.

    Raises:
        TrackingDown: MLflow did not take it.
    """
    entry = _entry(run, sweep, comparison, records, run.path / "report")
    mlflow_run = tracker.publish(entry)
    if latest:
        tracker.show_first(sweep.name, run.holder, _charts(sweep))
        tracker.describe(sweep.name, _note(run, sweep, comparison, tracker, mlflow_run))
    return mlflow_run


def write_files(
    folder: Path, sweep: Sweep, records: Sequence[TrialRecord], screen: Screen | None = None
) -> tuple[Comparison, str]:
    """Writes comparison, figures, Markdown and page into a folder; returns the first and third."""
    comparison = compare_sweep(sweep, records)
    figures = draw_figures(comparison) | inside_figures(comparison, records)
    for name, data in figures.items():
        write_bytes(folder / name, data)
    markdown = render_report(
        comparison,
        records,
        question=sweep.question,
        figures=tuple(figures),
        screen=screen,
        across=unmatched_settings(sweep),
    )
    write_value(folder / "comparison.json", comparison)
    write_text(folder / "report.md", markdown)
    sentence = decision_sentence(comparison)
    pictures = draw_pictures(comparison) | inside_pictures(comparison, records)
    page = render_page(markdown, title=sentence, pictures=pictures)
    write_text(folder / PAGE, page)
    return comparison, markdown


def _charts(sweep: Sweep) -> tuple[str, ...]:
    """The metrics whose charts open first: throughput of every probe before anything else."""
    figures = ("output_tok_s", "user_tok_s", "accept_length")
    return tuple(f"{probe}/{figure}" for figure in figures for probe in rungs_of(sweep.probes))


def _note(
    run: RunFolder, sweep: Sweep, comparison: Comparison, tracker: Tracker, report_run: str
) -> str:
    """What the experiment's page says on top: the question, its latest answer, and where more is."""
    links = {
        "Charts": tracker.chart_link(sweep.name),
        "Report": tracker.link(f"{sweep.name}/reports", report_run),
        "Prefect run": latest_flow_url(read_json(run.path / "run.json")),
    }
    said = " | ".join(f"[{name}]({link})" for name, link in links.items() if link)
    answer = f"**{inline(decision_sentence(comparison))}** ({run.id})"
    # The page shows the first line, and the rest at a click.
    return "\n\n".join(part for part in (answer, inline(sweep.question), said) if part)


def _entry(
    run: RunFolder,
    sweep: Sweep,
    comparison: Comparison,
    records: Sequence[TrialRecord],
    folder: Path,
) -> RunEntry:
    """The report's own run: verdicts as metrics, figures and text as artifacts."""
    # When it was written, whenever it is published: runs are sorted by it.
    now = int((folder / "comparison.json").stat().st_mtime * 1000)
    points: list[tuple[str, float | None, int]] = []
    for cell in comparison.cells:
        if cell.contrast != "arm":
            continue
        setting = "+".join([cell.arm, *cell.levels.values()])
        base = f"{cell.probe}/{setting}/{cell.metric}"
        points.append((f"{base}_ratio", cell.ratio, cell.concurrency))
        points.append((f"{base}_low", cell.low, cell.concurrency))
        points.append((f"{base}_high", cell.high, cell.concurrency))
    counts = {
        status: sum(record.status == status for record in records)
        for status in ("ok", "suspect", "failed", "skipped")
    }
    points += [(f"trials/{status}", float(number), 0) for status, number in counts.items()]
    sentence = decision_sentence(comparison)
    flow_url = latest_flow_url(read_json(run.path / "run.json"))
    prefect = f"\n\n[Prefect run]({flow_url})" if flow_url else ""
    return RunEntry(
        experiment=f"{sweep.name}/reports",
        name=run.id,
        key=f"{run.holder}/report",
        params={"question": sweep.question, "baseline": sweep.baseline},
        metrics=points,
        tags={
            "kind": "sweep",
            "sweep": sweep.name,
            "sweep_run": run.holder,
            "verdict": sentence,
            "mlflow.note.content": f"**{inline(sentence)}**{prefect}",
        },
        artifacts=folder,
        status="FINISHED",
        start_ms=now,
        end_ms=now,
    )
