"""`eagle3-sweep export`: a setting of a sweep as files that start it elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from configs.host import Host
from configs.problems import ConfigError, Problem
from flows.finding import SweepName, find_run, mistake
from flows.runs import RecordUnreadable, read_records, read_run_sweep
from flows.terminal import say
from infra.store import read_json, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from configs.sweep import Sweep
    from infra.store import RunFolder
    from tasks.comparison import Comparison
    from tasks.export_choice import Chosen
    from tasks.record import TrialRecord
    from tasks.strata import Stratum


def export(
    sweep: SweepName,
    *,
    arm: Annotated[str | None, typer.Option(help="another arm than the winner")] = None,
    level: Annotated[
        list[str] | None, typer.Option(help="FACTOR=LEVEL, for a named arm; may be repeated")
    ] = None,
    run_number: Annotated[int | None, typer.Option("--run", help="which run; the latest")] = None,
    out: Annotated[str | None, typer.Option(help="folder; else export/ in the run's")] = None,
    host_class: Annotated[
        str | None, typer.Option(help="which class of hosts, where the sweep ran on several")
    ] = None,
) -> None:
    """Write the winner as launch script, systemd unit and docker line, with its evidence."""
    from tasks.decision import decision_sentence
    from tasks.export_choice import choose
    from tasks.reporting import strata_of

    levels = _levels(level or [])
    if levels and arm is None:
        raise ConfigError([Problem("export", "--level", "is for a named arm: add --arm")])
    run = find_run(sweep, run_number)
    asked = read_run_sweep(run)
    comparison, records, _ = _one_class(strata_of(asked, read_records(run)), host_class)
    if comparison.problem is not None:
        mistake(
            f"no comparison of {asked.name} yet ({run.id}): {comparison.problem}: "
            f"`eagle3-sweep run {sweep}` goes on with it"
        )
    chosen = choose(asked, comparison, records, arm, levels)
    if chosen is None:
        mistake(
            f"nothing won, so nothing is exported. {decision_sentence(comparison)}.\n"
            f"An arm is exported when it is named: --arm {asked.baseline} is the baseline"
        )
    folder = Path(out) if out else run.path / "export" / chosen.slug
    names = _write(folder, run, asked, comparison, chosen)
    say(f"{decision_sentence(comparison)}.")
    named = "" if chosen.won else ", which the verdict does not name,"
    say(f"{chosen.label}{named} is in {folder}: {', '.join(names)}")


def _one_class(strata: Sequence[Stratum], wanted: str | None) -> Stratum:
    """The class of hosts that is exported for: what wins on one need not win on another."""
    by_name = {one.comparison.host_class: one for one in strata}
    if wanted is None and len(strata) == 1:
        return strata[0]
    if wanted in by_name:
        return by_name[wanted]
    names = ", ".join(str(name) for name in by_name)
    problem = "the sweep ran on several" if wanted is None else f"there is no {wanted}"
    raise ConfigError([Problem("export", "--host-class", f"{problem}: name one of {names}")])


def _levels(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    wrong = [
        Problem("export", "--level", f"{''.join(pair)!r}: write FACTOR=LEVEL")
        for pair in pairs
        if not (pair[0] and pair[1] and pair[2])
    ]
    if wrong:
        raise ConfigError(wrong)
    return {factor: name for factor, _, name in pairs}


def _write(
    folder: Path, run: RunFolder, sweep: Sweep, comparison: Comparison, chosen: Chosen
) -> list[str]:
    """Writes all files; returns their names."""
    from tasks.export_evidence import evidence_lines
    from tasks.export_plan import deployment
    from tasks.export_shell import docker_script, launch_script
    from tasks.export_unit import unit_file
    from tasks.k_by_batch import k_by_batch, table_lines
    from tasks.publish import published_link

    plan = deployment(sweep, _host(run, chosen.record), chosen)
    table = k_by_batch(sweep, comparison, chosen)
    attempt = run.path / "trials" / f"{chosen.record.trial}.a{chosen.record.attempt}"
    evidence = evidence_lines(
        sweep,
        comparison,
        chosen,
        plan,
        folder=str(run.path),
        link=published_link(attempt),
        table=table_lines(table),
    )
    files = {
        "launch.sh": launch_script(plan, evidence),
        f"{plan.slug}.service": unit_file(plan, evidence),
        "docker-run.sh": docker_script(plan, evidence),
    }
    files |= {patch.file: patch.outcome.diff for patch in plan.patches}
    if table.file is not None:
        files[table.file] = table.text
    for name, text in files.items():
        write_text(folder / name, text)
        if name.endswith(".sh"):
            (folder / name).chmod(0o700)
    return list(files)


def _host(run: RunFolder, record: TrialRecord) -> Host:
    """The host file as it was when the sweep was run."""
    hosts = read_json(run.path / "run.json").get("hosts", {})
    try:
        return Host.model_validate_json(json.dumps(hosts.get(record.host)))
    except ValidationError as error:
        raise RecordUnreadable(
            f"{run.path}/run.json does not hold the host file of {record.host} as this version "
            f"reads it: run {run.id} anew with --fresh"
        ) from error
