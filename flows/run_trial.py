"""One trial, from claim to publish: the list of its stages, and its record whatever happens."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from configs.probe import profiles_of, rungs_of
from configs.speculation import Off
from flows.probing import checks_of, climb, cross_check, longest, look_inside
from flows.world_faults import of_world
from infra.errors import AgentRefusal, WorldError
from infra.store import write_json, write_text
from tasks.alike import one_survey, same_patches
from tasks.ask_engine import check_flags
from tasks.drafter_host import check_drafter
from tasks.drive import Probed, Server
from tasks.follow import Follower
from tasks.launch import shell_line
from tasks.meter import Meter
from tasks.node_record import node_facts
from tasks.nodes import on_each
from tasks.patch_host import clear_pycache, patch
from tasks.prepare import Survey, clean_gpus, facts_to_keep, survey
from tasks.record_trial import Seen, build_record
from tasks.tear_down import let_go
from tasks.together import Launched, claim_all, launch_all, tear_down_all, watch_over
from tasks.venue import Site, StageFailedError, failed
from tasks.wait_ready import Ready, verify, wait_ready
from tasks.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from configs.patch import Patch
    from configs.probe import Stream
    from flows.stages import Runner
    from tasks.client_record import ClientRun
    from tasks.drive import Text
    from tasks.launch import Secrets
    from tasks.profile_record import StepProfile
    from tasks.record import Failure, PatchOutcome, TrialRecord
    from tasks.seen_files import FilesSeen
    from tasks.server_info import ServerInfo

# A cancelled flow has thirty seconds before SIGKILL (Prefect, not a setting); the engine's end
# must fit into it.
_HURRY_GRACE_S = 3.0
_HURRY_PATIENCE_S = 6.0  # with a host that is out of reach too: its lease does the rest


class Orders(NamedTuple):
    """What a trial needs besides its site."""

    patches: tuple[Patch, ...]
    texts: Mapping[str, Mapping[int, list[Text]]]
    secrets: Secrets
    sweep_run: str
    seen: FilesSeen
    """What the sweep's trials read of the model folders so far."""
    look: Callable[[Site], str] | None = None
    """Looks at the running engine before any traffic: a screen's proof."""
    notes: tuple[str, ...] = ()  # known before the trial, for its record
    peer_secrets: Mapping[str, Secrets] = {}


@dataclass
class Progress:
    """What is known of a trial so far; it grows stage by stage."""

    stage: str = "claim"
    survey: Survey | None = None
    surveys: tuple[Survey, ...] = ()
    """Of every node of the place, the leading one first."""
    patches: tuple[PatchOutcome, ...] = ()
    launched: Launched | None = None
    follower: Follower | None = None
    ready: Ready | None = None
    info: ServerInfo | None = None
    effective: dict[str, str] = field(default_factory=dict)
    unstable: tuple[str, ...] = ()
    probed: list[Probed] = field(default_factory=list)
    profiles: list[StepProfile] = field(default_factory=list)
    clients: list[ClientRun] = field(default_factory=list)
    failure: Failure | None = None
    notes: list[str] = field(default_factory=list)
    strangers: tuple[str, ...] = ()
    """Who else computed on the GPUs at the end."""


def run_trial(site: Site, orders: Orders, runner: Runner) -> TrialRecord:
    """Runs all stages; always tears down, always leaves a record in the attempt's folder.

    A known failure ends in a record and is no exception; anything that is not foreseen ends in a
    record too, and then goes on up, as does a cancellation.
    """
    progress = Progress(notes=list(orders.notes))
    began = _now()
    try:
        _stages(site, orders, runner, progress)
    except StageFailedError as error:
        progress.failure = error.failure
    except WorldError as error:
        progress.failure = _death_behind(error, progress) or of_world(progress.stage, error)
    except Exception as error:
        progress.failure = failed(
            progress.stage, "unknown_exception", f"{type(error).__name__}: {error}"
        ).failure
        raise
    except BaseException:
        progress.failure = failed(progress.stage, "cancelled").failure
        _end(site, runner, progress, hurry=True)
        raise
    finally:
        try:
            if progress.failure is None or progress.failure.failure_class != "cancelled":
                _end_in_order(site, runner, progress)
        finally:
            record = _record(site, orders, runner, progress, began)
    return record


def _stages(site: Site, orders: Orders, runner: Runner, progress: Progress) -> None:
    """The order of a trial. Reading it is reading what a trial does."""

    def stage(name: str) -> str:
        progress.stage = name.split(":", maxsplit=1)[0]
        return name

    sweep = site.sweep
    runner.run(stage("claim"), lambda: claim_all(site))
    on_each(site, lambda node: node.agent.make_folder(node.folder))
    looked = runner.run(stage("survey"), lambda: on_each(site, survey))
    progress.surveys = tuple(seen for seen, _ in looked)
    for node in site.nodes:
        write_json(node.keep.path / "facts.json", facts_to_keep(looked[node.rank][1], site.mask))
    progress.survey = found = one_survey(site, progress.surveys)
    progress.notes += check_flags(site, found)
    runner.run(
        stage("clean_gpus"),
        lambda: "; ".join(
            dict.fromkeys(on_each(site, lambda node: clean_gpus(node, *looked[node.rank])))
        ),
    )
    patched = runner.run(
        stage("patch"), lambda: on_each(site, lambda node: patch(node, orders.patches))
    )
    progress.patches = patched[0]
    same_patches(site, patched)
    runner.run(
        stage("clear_pycache"),
        lambda: on_each(site, lambda node: clear_pycache(node, patched[node.rank]))[0],
    )
    runner.run(stage("check_drafter"), lambda: check_drafter(site, found, orders.seen))
    progress.follower = follower = Follower(site)
    secrets = {site.host.name: orders.secrets, **orders.peer_secrets}
    progress.launched = runner.run(stage("launch"), lambda: launch_all(site, secrets))
    handle, follower.lookout = progress.launched.lead, watch_over(site)
    ready = runner.run(stage("wait_ready"), lambda: wait_ready(site, follower, handle))
    progress.ready = ready
    progress.info, progress.effective = runner.run(
        stage("verify"), lambda: verify(site, handle, ready)
    )
    if (look := orders.look) is not None:
        runner.run(stage("prove"), lambda: look(site))
    speculating = not isinstance(sweep.arms[site.trial.arm].speculation, Off)
    server = Server(site, follower, handle, Meter(site, handle, speculating=speculating))
    loads, texts = longest(sweep, orders.texts), orders.texts
    runner.run(stage("warm_up"), functools.partial(_warm, server, loads, progress))
    for name, probe in rungs_of(sweep.probes).items():
        ladder = functools.partial(climb, server, name, probe, texts[name], progress.probed.append)
        runner.run(stage(f"probe:{name}"), ladder)
    for check in checks_of(sweep, found.versions.get(site.engine.kind)):
        beside = functools.partial(
            cross_check, server, check, texts[check.probe.of], progress.clients.append
        )
        runner.run(stage(f"probe:{check.name}"), beside)
    # Last, wherever they stand in the file: recording slows a server down.
    for name, profile in profiles_of(sweep.probes).items():
        inside = functools.partial(
            look_inside, server, name, profile, texts[name], progress.profiles.append
        )
        runner.run(stage(f"probe:{name}"), inside)


def _warm(
    server: Server, loads: Mapping[str, tuple[Stream, Sequence[Text]]], progress: Progress
) -> str:
    warmed = warm_up(server, loads)
    progress.unstable = warmed.unstable
    return warmed.note


def _end_in_order(site: Site, runner: Runner, progress: Progress) -> None:
    """Tears down; who is interrupted in that tears down once more, in a hurry."""
    try:
        _end(site, runner, progress, hurry=False)
    except BaseException:
        if progress.failure is None:
            progress.failure = failed("tear_down", "cancelled").failure
        _end(site, runner, progress, hurry=True)
        raise


def _end(site: Site, runner: Runner, progress: Progress, *, hurry: bool) -> None:
    """Tears down; its own failure is the trial's only where there is none yet."""
    grace = _HURRY_GRACE_S if hurry else None
    lookout = progress.follower.lookout if progress.follower is not None else None
    if lookout is not None:
        lookout.end()
    if hurry:
        for node in site.nodes:
            node.agent.hurry(_HURRY_PATIENCE_S)
    try:
        runner.run("tear_down", lambda: _torn_down(site, progress, grace))
        if hurry:  # else the sweep keeps the host until its end
            on_each(site, let_go)
    except StageFailedError as error:
        _also(progress, error.failure)
    except WorldError as error:
        _also(progress, of_world("tear_down", error))
    if progress.follower is not None:
        progress.follower.finish()
    if lookout is not None:
        lookout.finish()


def _torn_down(site: Site, progress: Progress, grace_s: float | None) -> str:
    torn = tear_down_all(site, progress.launched, grace_s=grace_s)
    progress.strangers = torn.strangers
    return torn.said


def _also(progress: Progress, failure: Failure) -> None:
    if progress.failure is None:
        progress.failure = failure
    else:
        progress.notes.append(f"then tear_down: {failure.failure_class}: {failure.message}")


def _death_behind(error: WorldError, progress: Progress) -> Failure | None:
    """The engine's end, where a refused request to it is only the echo."""
    follower = progress.follower
    if follower is None or progress.launched is None or not isinstance(error, AgentRefusal):
        return None
    try:
        follower.raise_if_dead(follower.poll().poll, progress.stage)
    except StageFailedError as known:
        return known.failure
    except WorldError:
        return None
    return None


def _record(
    site: Site, orders: Orders, runner: Runner, progress: Progress, began: datetime
) -> TrialRecord:
    start = progress.follower.start.facts() if progress.follower else None
    speculating = not isinstance(site.sweep.arms[site.trial.arm].speculation, Off)
    seen = Seen(
        survey=progress.survey,
        start=start,
        info=progress.info,
        effective=progress.effective,
        patches=progress.patches,
        probed=tuple(progress.probed),
        failure=progress.failure,
        speculating=speculating,
        notes=(*progress.notes, *(progress.ready.notes if progress.ready else ())),
        sweep_run=orders.sweep_run,
        times=tuple(runner.times),
        began=began,
        ended=_now(),
        clock=progress.follower.clock.span() if progress.follower else None,
        unstable=progress.unstable,
        strangers=progress.strangers,
        profiles=tuple(progress.profiles),
        clients=tuple(progress.clients),
        joint=(joint := progress.launched.joint if progress.launched else None),
        nodes=node_facts(site, progress.surveys, joint),
    )
    record = build_record(site, orders.secrets, seen)
    for outcome in progress.patches:
        if outcome.diff:
            write_text(site.keep.path / f"{outcome.name}.diff", outcome.diff)
    write_text(
        site.keep.path / "command.txt",
        site.mask.text(shell_line(record.environment, record.command)) + "\n",
    )
    write_json(site.keep.path / "environment.json", record.environment)
    # Last: where record.json stands, the attempt has come to an end.
    write_text(site.keep.record, record.model_dump_json(indent=1) + "\n")
    return record


def _now() -> datetime:
    return datetime.now(UTC)
