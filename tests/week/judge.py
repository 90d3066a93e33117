"""Judges the week from outside: from disks, databases and processes, not from what was said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from configs.plan import Plan
from infra.agent.processes import alive
from tests.chaos.scene import ours_on
from tests.sweeping import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.store import RunFolder
    from tests.sweeping import Ground
    from tests.week.quick import Week
    from tests.week.sightings import Sightings
    from tests.week.site import Site
    from tests.week.story import Story


class Span(NamedTuple):
    """The life of one engine, as the agent on its host wrote it down."""

    host: str
    mark: str
    begin: float
    end: float
    """On the machine's own clock, which all pretend hosts share."""
    wall: datetime


class Said(NamedTuple):
    """One thing that must hold, and what was found."""

    what: str
    found: str
    holds: bool


class Night(NamedTuple):
    """One night, from its flow run and its run folder."""

    number: int
    planned: datetime
    begun: datetime
    ended: datetime
    begins: int
    state: str
    run: str
    attempts: int
    measured: int
    planned_trials: int
    sentence: str


def spans(site: Site, seen: Sightings) -> list[Span]:
    """All engines of the week.

    Where the agent was killed with its engine (a reboot), it is the last look that saw the engine
    alive which ends its span; an engine that lives has no end.
    """
    found = []
    for host, ground in site.grounds.items():
        for path in sorted((ground.root / "trials").glob("*/state.json")):
            state = json.loads(path.read_bytes())
            begin, end, mark = (
                state["started_monotonic"],
                state["ended_monotonic"],
                path.parent.name,
            )
            if end is None and not alive(state["engine"]):
                end = seen.last.get((host, mark), begin)
            wall = datetime.fromtimestamp(state["started_wall"], tz=UTC)
            found.append(Span(host, mark, begin, end or float("inf"), wall))
    return found


def overlaps(engines: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs of engines that were alive on one host at once."""
    pairs = []
    for host in {span.host for span in engines}:
        here = sorted((s for s in engines if s.host == host), key=lambda span: span.begin)
        pairs += [(a, b) for a, b in pairwise(here) if b.begin < a.end]
    return pairs


def nights(story: Story, week: Week) -> list[Night]:
    """The seven."""
    return [_night(story, week, number) for number in range(1, week.nights + 1)]


def _night(story: Story, week: Week, number: int) -> Night:
    run = story.night(number)
    folder = story.folder(run["id"])
    assert folder is not None, f"night {number} has no run folder"
    attempts, last = records(folder)
    plan = Plan.model_validate_json((folder.path / "plan.json").read_bytes())
    return Night(
        number=number,
        planned=week.planned(number),
        begun=datetime.fromisoformat(run["start_time"]),
        ended=datetime.fromisoformat(run["end_time"]),
        begins=run["run_count"],
        state=run["state"]["name"],
        run=folder.id,
        attempts=attempts,
        measured=sum(record["status"] in MEASURED for record in last.values()),
        planned_trials=len(plan.trials),
        sentence=run["state"]["message"] or "",
    )


def records(run: RunFolder) -> tuple[int, dict[str, Any]]:
    """How many attempts a run has, and the last record of each trial."""
    found = [json.loads(folder.record.read_bytes()) for folder in run.trials() if folder.finished]
    last = {record["trial"]: record for record in sorted(found, key=lambda r: r["attempt"])}
    return len(list(run.trials())), last


def judged(site: Site, story: Story, week: Week, seen: Sightings) -> Iterator[Said]:
    """Everything that must hold at the end of the week."""
    found = nights(story, week)
    folders = story.folders()
    yield Said(
        "a report each, of every planned trial",
        f"{len(folders)} run folders, {sum(_reported(f) for f in folders)} reports, "
        f"{sum(night.measured for night in found)} of "
        f"{sum(night.planned_trials for night in found)} trials measured",
        len(folders) == week.nights
        and all(_reported(folder) for folder in folders)
        and all(night.measured == night.planned_trials for night in found),
    )
    yield _in_mlflow(site, folders)
    yield Said(
        "of the night without MLflow, nothing was in it until it came back",
        f"{story.kept_out} runs then",
        story.kept_out == 0,
    )
    yield _alone(site, seen)
    yield from _orphans(site)
    yield from _prefect(site)
    yield _messages(site, story, week)


def _reported(run: RunFolder) -> bool:
    files = ("report.html", "report.md", "comparison.json")
    return all((run.path / "report" / name).is_file() for name in files)


def _in_mlflow(site: Site, folders: list[RunFolder]) -> Said:
    wanted = {
        f"{run.holder}/{attempt.trial}/a{attempt.attempt}"
        for run in folders
        for attempt in run.trials()
    } | {f"{run.holder}/report" for run in folders}
    query = (
        "SELECT t.value FROM tags t JOIN runs r ON r.run_uuid = t.run_uuid "
        "WHERE t.key = 'eagle3.key' AND r.lifecycle_stage = 'active' AND r.status <> 'RUNNING'"
    )
    there = [row[0] for row in site.rows("mlflow", query)]
    missing = sorted(wanted - set(there))
    reports = sum(key.endswith("/report") for key in there)
    return Said(
        "MLflow has every attempt and every report, once",
        f"{len(there) - reports} attempts and {reports} reports in its database"
        + (f", missing {missing}" if missing else ""),
        sorted(there) == sorted(wanted),
    )


def _alone(site: Site, seen: Sightings) -> Said:
    engines = spans(site, seen)
    both = overlaps(engines)
    together = [*map(str, both), *map(str, seen.together)]
    return Said(
        "no two engines at once on a host",
        f"{len(engines)} engines by the state files of the agents, {len(both)} pairs overlap; "
        f"{seen.looks} looks at all processes, {len(seen.together)} saw two trials on one host"
        + (f": {together}" if together else ""),
        bool(engines) and not together,
    )


def _orphans(site: Site) -> Iterator[Said]:
    left = [f"{name}: {word}" for name, ground in site.grounds.items() for word in _left(ground)]
    yield Said(
        "no orphan on a host",
        "no engine, no process of a trial, no GPU memory, no claim" if not left else str(left),
        not left,
    )


def _left(ground: Ground) -> Iterator[str]:
    yield from (f"engine {pid}" for pid in ground.engines())
    yield from (f"memory of {holder}" for holder in ground.holders())
    yield from ours_on(ground)
    if (ground.root / "claim.json").exists():
        yield "claimed"


def _prefect(site: Site) -> Iterator[Said]:
    slots = site.rows("prefect", "SELECT name, active_slots FROM concurrency_limit_v2")
    held = [name for name, active in slots if int(active)]
    yield Said(
        "no slot is held",
        f"{len(slots)} limits in its database, held: {', '.join(held) or 'none'}",
        bool(slots) and not held,
    )
    query = "SELECT state_type, count(*) FROM flow_run GROUP BY state_type"
    states = {state: int(count) for state, count in site.rows("prefect", query)}
    going = {key: n for key, n in states.items() if key in {"RUNNING", "PENDING", "CANCELLING"}}
    told = ", ".join(f"{n} {state.capitalize()}" for state, n in sorted(states.items()))
    yield Said("no flow run is going on", told, bool(states) and not going)


def _messages(site: Site, story: Story, week: Week) -> Said:
    mornings, all_told = story.mornings(), site.hook.messages
    others = [m["subject"] for m in all_told if m not in mornings]
    return Said(
        "a message each morning",
        f"{len(mornings)} of mornings, and: {', '.join(others) or 'nothing'}",
        len(mornings) == week.nights,
    )
