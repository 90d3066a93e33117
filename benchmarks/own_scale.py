"""Large logs, many trials and many records: what grows with them, and what must not."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.large_log import chunks
from benchmarks.own_trials import Counting, ground, run_one
from configs.sweep import Sweep
from flows.conduct import Conductor
from flows.outcome import Hands
from flows.question import pose
from flows.runs import open_run, read_records
from flows.skips import reconcile, why_skip
from flows.stages import PlainRunner
from infra.connect import address, connect
from infra.host_agent import HostAgent
from infra.masking import Mask
from infra.ssh import SshShell
from infra.store import Store, TrialFolder, write_text
from infra.tracking import Tracker
from tasks.follow import Follower
from tasks.prepare import survey
from tasks.publish import publish_trial
from tasks.record_trial import fingerprint
from tasks.venue import Site
from tests import sweeping
from tests.agent_host import until
from tests.builders import measurement, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.question import Question
    from infra.store import RunFolder
    from tasks.record import TrialRecord
    from tests.sweeping import Ground

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_mb() -> float:
    """What this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


def slope(values: Sequence[float]) -> float:
    """Growth from one value to the next, by least squares."""
    return statistics.linear_regression(range(len(values)), values).slope


class Followed(NamedTuple):
    """What it took to read a log to its end."""

    size: int
    received: int
    polls: int
    seconds: float
    ready: bool
    grew_mb: float


def follow_log(place: Path, megabytes: int) -> Followed:
    """A log that lies on the host already, followed as a trial does; no delay on the line."""
    with ground(place) as here:
        shell = Counting(SshShell(address(here.host)))
        agent = HostAgent(shell, here.host)
        site = _site(here, agent, sweeping.sweep("log", arms="tuned"), place / "kept")
        agent.make_folder(site.folder)
        log = Path(site.folder) / "server.log"
        with log.open("wb") as out:
            for chunk in chunks(megabytes * 1_000_000):
                out.write(chunk)
        size, before, held = log.stat().st_size, shell.calls, memory_mb()
        follower, began, polls = Follower(site), time.monotonic(), 1
        while follower.poll(timeout_s=0.0).grew:
            polls += 1
        seconds = time.monotonic() - began
        follower.finish()
        agent.close()
        assert (site.keep.path / "server.log").stat().st_size == size
        return Followed(
            size,
            shell.calls.since(before).received,
            polls,
            seconds,
            follower.start.facts().was_ready,
            memory_mb() - held,
        )


def _site(here: Ground, agent: HostAgent, asked: Sweep, keep: Path) -> Site:
    question = pose(asked, str(here.host_file()))
    return Site(
        agent=agent,
        host=here.host,
        sweep=question.sweep,
        trial=question.plan.trials[0],
        holder="own-time",
        marker=f"own-time.{datetime.now(UTC):%H%M%S%f}",
        keep=TrialFolder(keep),
        mask=Mask(),
    )


class Grown(NamedTuple):
    """How memory grew."""

    trials: int
    counted: int
    after_mb: float
    slope_kb: float


def _grown(held: list[float]) -> Grown:
    """By the later two thirds: the first trials fill caches and load modules."""
    late = held[len(held) // 3 :]
    return Grown(len(held), len(late), held[-1], slope(late) * 1000)


def real_trials(place: Path, trials: int) -> Grown:
    """One process that runs trial after trial."""
    held: list[float] = []
    with ground(place) as here:
        asked = sweeping.sweep("memory", patches="", blocks=trials, tokens=8, per_slot=1)
        question = pose(asked, str(here.host_file()))

        def say(text: str) -> None:
            if text.startswith("b"):
                held.append(memory_mb())

        hands = Hands(connect, lambda _trial: PlainRunner(lambda _text: None), None, say)
        with open_run(here.runs, question) as run:
            Conductor(question, run, hands).conduct()
    return _grown(held)


def published(place: Path, records: int) -> Grown:
    """Records written, kept as a conductor keeps them, and published one by one."""
    place.mkdir(parents=True)
    tracker = Tracker(f"sqlite:///{place}/mlflow.db")
    run = Store(place / "runs").new_run("kept")
    kept: list[TrialRecord] = []
    held: list[float] = []
    for block in range(1, records + 1):
        made = record("base", block, tuple(measurement(concurrency=c) for c in (1, 8, 32, 64)))
        folder = run.next_attempt(made.trial)
        folder.append("server.log", b"a line of the engine\n" * 1000)
        write_text(folder.record, made.model_dump_json(indent=1) + "\n")
        kept.append(made)
        publish_trial(folder, tracker)
        held.append(memory_mb())
    return _grown(held)


class Many(NamedTuple):
    """Ten thousand trials."""

    trials: int
    plan_s: list[float]
    resume_s: list[float]
    parts: dict[str, float]
    record_bytes: int


def ten_thousand(place: Path, runs: int) -> Many:
    """A run folder in which one trial of ten thousand is missing."""
    with ground(place) as here:
        small = run_one(here, sweeping.sweep("one", arms="base", patches="")).record
        question = pose(_large(), str(here.host_file()))
        folder = here.sweep_file(question.sweep)
        agent = connect(here.host)
        site = _site(here, agent, question.sweep, place / "survey")
        agent.make_folder(site.folder)
        found, _raw = survey(site)
        agent.call("release", root=agent.root, holder=site.holder)
        agent.close()
        wanted = {trial.id: fingerprint(trial, found) for trial in question.plan.trials}
        with open_run(here.runs, question) as run:
            size = _fill(run, question, small, wanted)
            parts = _parts(question, run, wanted)
        _plan(here, folder)  # writes the bytecode
        plan_s = [_plan(here, folder) for _ in range(runs)]
        resume_s = [_resume(here, folder, run) for _ in range(runs)]
    return Many(len(question.plan.trials), plan_s, resume_s, parts, size)


def _large() -> Sweep:
    """Ten arms under ten levels in a hundred blocks."""
    arms = "+".join(["base", *(f"arm{n}" for n in range(9))])
    asked = sweeping.sweep("large", arms=arms, patches="", blocks=100)
    levels = {f"l{n}": {"env": {"LEVEL": str(n)}} for n in range(10)}
    return Sweep.model_validate({**asked.model_dump(mode="json"), "factors": {"level": levels}})


def _fill(run: RunFolder, question: Question, like: TrialRecord, wanted: dict[str, str]) -> int:
    """Records of all trials but the last; returns the size of one."""
    data = b""
    for trial in question.plan.trials[:-1]:
        update = {
            **trial.model_dump(include={"arm", "levels", "block", "order", "host"}),
            "sweep": question.sweep.name,
            "trial": trial.id,
            "baseline": trial.arm == question.sweep.baseline,
            "fingerprint": wanted[trial.id],
            "status": "ok",
            "findings": (),
        }
        data = like.model_copy(update=update).model_dump_json(indent=1).encode()
        path = run.path / "trials" / f"{trial.id}.a1" / "record.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    return len(data)


def _parts(question: Question, run: RunFolder, wanted: dict[str, str]) -> dict[str, float]:
    """What a resume does before it touches the host, step by step."""
    marks = [("", time.monotonic())]
    list(reconcile(run))
    marks.append(("interrupted ones looked for", time.monotonic()))
    records = {one.trial: one for one in read_records(run)}
    marks.append(("records read", time.monotonic()))
    trials = question.plan.trials
    left = [t for t in trials if why_skip(t, wanted[t.id], records) is None]
    marks.append(("skips decided", time.monotonic()))
    assert left == [trials[-1]]
    return {name: at - before for (_, before), (name, at) in itertools.pairwise(marks)}


def _kept(place: Path) -> dict[str, str]:
    """Bytecode is kept from start to start, as on a user's machine, whatever this one is set to."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(place / "bytecode")}


def _plan(here: Ground, path: Path) -> float:
    began = time.monotonic()
    with here.command("plan", str(path), **_kept(here.place)) as command:
        assert command.ended() == 0, command.text[-2000:]
    return time.monotonic() - began


def _resume(here: Ground, path: Path, run: RunFolder) -> float:
    """From the command to the missing trial's first stage; then it is stopped and taken away."""
    place = run.path / "trials"
    before, stamp = {folder.name for folder in place.iterdir()}, place.stat().st_mtime_ns
    began = time.monotonic()
    with here.command("run", str(path), **_kept(here.place)) as command:
        # Ten thousand names, read again and again, would take a core of its own.
        until(lambda: place.stat().st_mtime_ns != stamp, 120)
        seconds = time.monotonic() - began
        (new,) = {folder.name for folder in place.iterdir()} - before
        command.signal(signal.SIGTERM)
        command.ended(120)
    shutil.rmtree(place / new)
    return seconds
