"""Writes what a run says: comparison, figures and report, into the folder and into MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.communication import communication_factors
from configs.probe import rungs_of
from configs.values import Value
from infra.store import read_json, write_bytes, write_text, write_value
from infra.tracking import RunEntry, TrackingDown
from tasks.comparable import by_host_class
from tasks.compare import compare
from tasks.comparison import Comparison
from tasks.decision import decision_of, decision_sentence
from tasks.entry import latest_flow_url
from tasks.figures import draw_figures, draw_pictures
from tasks.inside_figure import inside_figures, inside_pictures
from tasks.looks import confidence_of_look
from tasks.markdown_text import inline
from tasks.publish import note_missed
from tasks.report_page import render_page
from tasks.screen_kept import read_screen
from tasks.strata import Stratum, render_strata
from tasks.unmatched import unmatched_settings
from tasks.what_if import what_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from configs.sweep import Sweep
    from infra.store import RunFolder
    from infra.tracking import Tracker
    from tasks.figures import Picture
    from tasks.record import TrialRecord
    from tasks.screen import Screen

PAGE = "report.html"
"""The report for people, in the run's folder ``report``."""


class Report(Value):
    """What a run says."""

    sweep: str
    sentence: str
    comparisons: tuple[Comparison, ...]
    """One for each class of hosts that the sweep ran on; most run on one."""
    markdown: str
    folder: str
    mlflow_run: str | None
    """Id of the report's own run in MLflow."""

    @property
    def comparison(self) -> Comparison:
        """That of the only class of hosts, else of the first."""
        return self.comparisons[0]


def compare_classes(sweep: Sweep, records: Sequence[TrialRecord]) -> tuple[Comparison, ...]:
    """The comparisons that a sweep asks for: one for each class of hosts, at least one."""
    return tuple(one.comparison for one in strata_of(sweep, records))


def strata_of(sweep: Sweep, records: Sequence[TrialRecord]) -> tuple[Stratum, ...]:
    """The trials on each class of hosts with their comparison, in the order of the trials."""
    parts = by_host_class(records)
    if len(parts) == 1:
        return (Stratum(compare_sweep(sweep, records), tuple(records)),)
    return tuple(
        Stratum(
            compare_sweep(sweep, part).model_copy(
                update={"host_class": name, "classes": tuple(parts)}
            ),
            part,
        )
        for name, part in parts.items()
    )


def compare_sweep(sweep: Sweep, records: Sequence[TrialRecord]) -> Comparison:
    """The comparison that a sweep asks for on hosts of one class; those of another are refused."""
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
    comparisons, markdown = write_files(folder, sweep, records, read_screen(run.path))
    mlflow_run = None
    if tracker is not None:
        try:
            mlflow_run = publish_report(run, sweep, comparisons, records, tracker)
        except TrackingDown as error:
            note_missed(run, tracker.uri)
            say(f"the report is not in MLflow yet: {error}")
    return Report(
        sweep=sweep.name,
        sentence=decision_of(comparisons),
        comparisons=comparisons,
        markdown=markdown,
        folder=str(folder),
        mlflow_run=mlflow_run,
    )


def publish_report(
    run: RunFolder,
    sweep: Sweep,
    comparisons: Sequence[Comparison],
    records: Sequence[TrialRecord],
    tracker: Tracker,
    *,
    latest: bool = True,
) -> str:
    """Writes the report that stands in the run folder into MLflow; returns its run there.

    Args:
        run: The run.
        sweep: As it was then.
        comparisons: What the report says, one for each class of hosts.
        records: What it is of.
        tracker: The MLflow.
        latest: Whether the experiment's page shall show this run: not one that a later one followed.

    Raises:
        TrackingDown: MLflow did not take it.
    """
    entry = _entry(run, sweep, comparisons, records, run.path / "report")
    mlflow_run = tracker.publish(entry)
    if latest:
        tracker.show_first(sweep.name, run.holder, _charts(sweep))
        tracker.describe(sweep.name, _note(run, sweep, comparisons, tracker, mlflow_run))
    return mlflow_run


def kept_comparisons(run: RunFolder) -> tuple[Comparison, ...]:
    """The comparisons of a run's report, one for each class of hosts; none if there is no report."""
    folder = run.path / "report"
    if not (folder / "comparison.json").is_file():
        return ()
    first = Comparison.model_validate_json((folder / "comparison.json").read_bytes())
    names = [f"comparison--{host_class}.json" for host_class in first.classes]
    others = [Comparison.model_validate_json((folder / name).read_bytes()) for name in names]
    return tuple(others) or (first,)


def write_files(
    folder: Path, sweep: Sweep, records: Sequence[TrialRecord], screen: Screen | None = None
) -> tuple[tuple[Comparison, ...], str]:
    """Writes comparisons, figures, Markdown and page; returns the comparisons and the Markdown."""
    strata: list[Stratum] = []
    pictures: dict[str, Picture] = {}
    for one in strata_of(sweep, records):
        comparison, mine = one.comparison, one.records
        drawn = draw_figures(comparison) | inside_figures(comparison, mine)
        for name, data in drawn.items():
            write_bytes(folder / _of_class(name, comparison), data)
        shown = draw_pictures(comparison) | inside_pictures(comparison, mine)
        pictures |= {_of_class(name, comparison): data for name, data in shown.items()}
        figures = tuple(_of_class(name, comparison) for name in drawn)
        strata.append(one._replace(figures=figures))
        if comparison.classes:
            write_value(folder / _of_class("comparison.json", comparison), comparison)
    comparisons = tuple(one.comparison for one in strata)
    across = unmatched_settings(sweep)
    markdown = render_strata(strata, question=sweep.question, screen=screen, across=across)
    write_value(folder / "comparison.json", comparisons[0])
    write_text(folder / "report.md", markdown)
    page = render_page(markdown, title=decision_of(comparisons), pictures=pictures)
    write_text(folder / PAGE, page)
    return comparisons, markdown


def _of_class(file: str, comparison: Comparison) -> str:
    """A file's name, with the class of hosts in it where there are several."""
    if not comparison.classes:
        return file
    name, dot, ending = file.rpartition(".")
    return f"{name}--{comparison.host_class}{dot}{ending}"


def _charts(sweep: Sweep) -> tuple[str, ...]:
    """The metrics whose charts open first: throughput of every probe before anything else."""
    figures = ("output_tok_s", "user_tok_s", "accept_length")
    return tuple(f"{probe}/{figure}" for figure in figures for probe in rungs_of(sweep.probes))


def _note(
    run: RunFolder,
    sweep: Sweep,
    comparisons: Sequence[Comparison],
    tracker: Tracker,
    report_run: str,
) -> str:
    """What the experiment's page says on top: the question, its latest answer, and where more is."""
    links = {
        "Charts": tracker.chart_link(sweep.name),
        "Report": tracker.link(f"{sweep.name}/reports", report_run),
        "Prefect run": latest_flow_url(read_json(run.path / "run.json")),
    }
    said = " | ".join(f"[{name}]({link})" for name, link in links.items() if link)
    answer = f"**{inline(decision_of(comparisons))}** ({run.id})"
    # The page shows the first line, and the rest at a click.
    return "\n\n".join(part for part in (answer, inline(sweep.question), said) if part)


def _entry(
    run: RunFolder,
    sweep: Sweep,
    comparisons: Sequence[Comparison],
    records: Sequence[TrialRecord],
    folder: Path,
) -> RunEntry:
    """The report's own run: verdicts as metrics, figures and text as artifacts."""
    # When it was written, whenever it is published: runs are sorted by it.
    now = int((folder / "comparison.json").stat().st_mtime * 1000)
    points = [point for comparison in comparisons for point in _points(comparison)]
    counts = {
        status: sum(record.status == status for record in records)
        for status in ("ok", "suspect", "failed", "skipped")
    }
    points += [(f"trials/{status}", float(number), 0) for status, number in counts.items()]
    sentence = decision_of(comparisons)
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
            **{
                f"verdict.{one.host_class}": decision_sentence(one)
                for one in comparisons
                if one.classes
            },
        },
        artifacts=folder,
        status="FINISHED",
        start_ms=now,
        end_ms=now,
    )


def _points(comparison: Comparison) -> Iterator[tuple[str, float | None, int]]:
    """Ratios to the baseline with the concurrency as step; the class first where there are several."""
    place = f"{comparison.host_class}/" if comparison.classes else ""
    for cell in comparison.cells:
        if cell.contrast != "arm":
            continue
        setting = "_".join([cell.arm, *cell.levels.values()])  # MLflow takes no + in a name
        base = f"{place}{cell.probe}/{setting}/{cell.metric}"
        yield f"{base}_ratio", cell.ratio, cell.concurrency
        yield f"{base}_low", cell.low, cell.concurrency
        yield f"{base}_high", cell.high, cell.concurrency
