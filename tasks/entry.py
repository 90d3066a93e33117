"""From a record to its row in MLflow: names, steps and tags as people search for them."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tasks.client_record import client_figures
from tasks.metrics import METRICS
from tasks.profile_record import share_figures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tasks.record import Measurement, TrialRecord

Point = tuple[str, float | None, int]
"""(metric, value, step)"""
# The run of a sweep as records name it: <sweep>-<number>-<eight hexadecimal digits>.
_RUN_NUMBER = re.compile(r"-(?P<number>\d{4,})-[0-9a-f]+$")


class FlowRun(NamedTuple):
    """A run of the flow in Prefect."""

    id: str
    url: str
    """Its page; empty where Prefect has none."""


def params_of(record: TrialRecord) -> dict[str, str]:
    """Flags asked and effective, factor levels, versions, hashes.

    Params are immutable in MLflow: nothing stands here that a second publishing could change.
    """
    found = {f"asked.{flag}": value for flag, value in record.asked.items()}
    found |= {f"eff.{flag}": value for flag, value in record.effective.items()}
    found |= {f"factor.{factor}": level for factor, level in record.levels.items()}
    found |= {f"version.{name}": value for name, value in record.versions.items()}
    # MLflow takes no ~ in a name.
    facts = record.must_match.items()
    found |= {f"must_match.{name.replace('~/', '')}": value for name, value in facts}
    found |= {f"model.{name}": value for name, value in record.models.items()}
    found |= {f"patch.{patch.name}": patch.action for patch in record.patches}
    found["command"] = shlex.join(record.command)
    return found


def metrics_of(record: TrialRecord) -> list[Point]:
    """Every figure with step = concurrency, and as a scalar per concurrency.

    MLflow's own chart then draws throughput against concurrency per arm; its tables show the
    last step alone, so they need the scalars.
    """
    points: list[Point] = []
    for measured in record.measurements:
        for name, value in _figures(measured):
            level = measured.concurrency
            points.append((f"{measured.probe}/{name}", value, level))
            points.append((f"{measured.probe}/c{level}_{name}", value, 0))
    points += [
        point
        for profile in record.profiles
        for name, value in share_figures(profile)
        for point in (
            (f"{profile.probe}/{name}", value, profile.concurrency),
            (f"{profile.probe}/c{profile.concurrency}_{name}", value, 0),
        )
    ]
    points += [
        point
        for run in record.clients
        for name, value in client_figures(run)
        for point in (
            (f"{run.probe}/{name}", value, run.concurrency),
            (f"{run.probe}/c{run.concurrency}_{name}", value, 0),
        )
    ]
    points += [(f"start/{name}", value, 0) for name, value in record.start.items()]
    points += [(f"stages/{time.name}_s", time.seconds, 0) for time in record.stages]
    return points


def _figures(measured: Measurement) -> Iterator[tuple[str, float | None]]:
    for metric in METRICS:
        value = getattr(measured, metric.name)
        if hasattr(value, "p50"):
            for percentile in ("p50", "p90", "p99"):
                yield f"{metric.name}_{percentile}", getattr(value, percentile)
        else:
            yield metric.name, value
    yield "full_output_tok_s", measured.full_output_tok_s
    yield "failed_requests", float(measured.failed)
    for k, share in enumerate(measured.accept_at_k or (), start=1):
        yield f"accept_at_{k}", share
    yield "verify_steps", _number(measured.verify_steps)
    yield "accepted_drafts", _number(measured.accepted)


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def tags_of(record: TrialRecord) -> dict[str, str]:
    """What people search for and group by."""
    failure = record.failure
    return {
        "kind": "trial",
        "sweep": record.sweep,
        "sweep_run": record.sweep_run,
        "trial": record.trial,
        "attempt": str(record.attempt),
        "arm": record.arm,
        "setting": setting_name(record),
        "baseline": str(record.baseline).lower(),
        "block": str(record.block),
        "host": record.host,
        "host_class": record.host_class,
        "rehearsal": str(record.rehearsal).lower(),
        "synthetic": record.synthetic.words if record.synthetic else "none",
        "fingerprint": record.fingerprint,
        "status": record.status,
        "failure_class": failure.failure_class if failure else "none",
        "failure_stage": failure.stage if failure else "none",
        "findings": ",".join(sorted({finding.name for finding in record.findings})) or "none",
        "mlflow.note.content": describe(record),
    }


def setting_name(record: TrialRecord) -> str:
    """Arm and levels in one word, for group-by."""
    return "+".join([record.arm, *record.levels.values()])


def describe(record: TrialRecord) -> str:
    """The run's description in MLflow, as Markdown."""
    lines = [f"**{record.status}** {setting_name(record)}, block {record.block} on {record.host}"]
    if record.rehearsal:
        lines.append("REHEARSAL: the pretend host; no claim about any GPU.")
    if record.synthetic:
        lines.append(f"MADE UP: {record.synthetic.words}; no claim about any drafter.")
    if record.failure:
        lines.append(
            f"failed at {record.failure.stage}: `{record.failure.failure_class}`: "
            f"{record.failure.message}"
        )
        lines.append(f"What to do: {record.failure.remedy}")
    lines += [f"- {f.name} ({f.where}): {f.evidence}; {f.advice}" for f in record.findings]
    return "\n\n".join(lines)


def run_name(record: TrialRecord) -> str:
    """A name that sorts by run of the sweep, then in the order of the plan: 0003/0007 b01-base."""
    attempt = f".a{record.attempt}" if record.attempt > 1 else ""
    run = _RUN_NUMBER.search(record.sweep_run)
    number = f"{run['number']}/" if run else ""
    return f"{number}{record.order:04d} {record.trial}{attempt}"


def linked(tags: Mapping[str, str], flow: FlowRun | None) -> dict[str, str]:
    """Tags with the Prefect run that ran the trial, and its address in the description."""
    if flow is None:
        return dict(tags)
    found = {**tags, "prefect_flow_run": flow.id}
    if flow.url:
        found["mlflow.note.content"] = f"{tags['mlflow.note.content']}\n\n[Prefect run]({flow.url})"
    return found


def latest_flow_url(known: Mapping[str, object]) -> str:
    """The page of the Prefect run that worked last on a run folder; empty where there is none."""
    entries = known.get("prefect")
    return str(entries[-1]["url"]) if isinstance(entries, list) and entries else ""


def flow_run_at(known: Mapping[str, object], moment: str) -> FlowRun | None:
    """The Prefect run that worked on a run folder at some time; None: none, or not known.

    Args:
        known: What run.json says; ``prefect`` holds each flow run with its begin.
        moment: ISO 8601, such as a trial's begin.
    """
    entries = known.get("prefect")
    when = datetime.fromisoformat(moment)
    found = None
    for entry in entries if isinstance(entries, list) else []:
        if datetime.fromisoformat(entry["began"]) <= when:
            found = FlowRun(entry["id"], entry["url"])
    return found


def run_status(record: TrialRecord) -> str:
    """MLflow's word for a record's status."""
    if record.failure is None:
        return "FINISHED"
    return "KILLED" if record.failure.failure_class == "cancelled" else "FAILED"


def key_of(record: TrialRecord) -> str:
    """The same attempt is always the same run."""
    return f"{record.sweep_run}/{record.trial}/a{record.attempt}"


def millis(moment: str) -> int:
    """ISO 8601 to milliseconds since the epoch."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
