"""Puts together the record of a trial from what its stages saw."""

from __future__ import annotations

import functools
import platform
from typing import TYPE_CHECKING, NamedTuple, assert_never

from configs.plan import hash_of
from configs.probe import streams_of
from configs.rules import arm_flags
from configs.speculation import drafter_of
from configs.synthetic import synthetic_of
from infra.about import product_version
from tasks.check import check
from tasks.check_client import check_clients
from tasks.check_profile import check_profiles
from tasks.evidence import evidence_of
from tasks.launch import engine_argv, engine_env, secret_env
from tasks.record import TrialRecord

if TYPE_CHECKING:
    from datetime import datetime

    from configs.nodes import Joint
    from configs.plan import Trial
    from configs.releases import EngineKind
    from configs.sweep import Sweep
    from infra.masking import Mask
    from tasks.client_record import ClientRun
    from tasks.drive import Probed
    from tasks.host_clock import Span
    from tasks.launch import Secrets
    from tasks.node_facts import NodeFacts
    from tasks.prepare import Survey
    from tasks.profile_record import StepProfile
    from tasks.record import Failure, PatchOutcome, StageTime, Status
    from tasks.server_info import ServerInfo
    from tasks.start_facts import StartFacts
    from tasks.venue import Site


class Seen(NamedTuple):
    """What the stages of an attempt saw, as far as they came."""

    survey: Survey | None
    start: StartFacts | None
    info: ServerInfo | None
    effective: dict[str, str]
    patches: tuple[PatchOutcome, ...]
    probed: tuple[Probed, ...]
    failure: Failure | None
    speculating: bool
    notes: tuple[str, ...]
    sweep_run: str
    times: tuple[StageTime, ...]
    began: datetime
    ended: datetime
    clock: Span | None = None
    """The trial's time on the host's clock and on ours."""
    unstable: tuple[str, ...] = ()
    """Probes whose warm-up did not settle, in words."""
    strangers: tuple[str, ...] = ()
    """Who else computed on the GPUs when the engine was gone."""
    profiles: tuple[StepProfile, ...] = ()
    clients: tuple[ClientRun, ...] = ()
    joint: Joint | None = None
    """How the ranks of several nodes found each other."""
    nodes: tuple[NodeFacts, ...] = ()


def fingerprint(trial: Trial, survey: Survey | None) -> str:
    """Hash of everything that may change a trial's numbers: what is asked, and what is there.

    A changed driver, engine version, drafter file, patch or prompt set gives another one; the
    block does not, so that repeats share it.
    """
    return _fingerprint(trial.intent, survey.facts_key if survey else None)


@functools.lru_cache(maxsize=4096)  # blocks share them
def _fingerprint(intent: str, host: str | None) -> str:
    return hash_of({"intent": intent, "host": host})


def build_record(site: Site, secrets: Secrets, seen: Seen) -> TrialRecord:
    """The record of one attempt; secrets are masked here, before anything is written."""
    sweep, host, trial = site.sweep, site.host, site.trial
    flags = arm_flags(sweep, trial.arm, trial.levels)
    findings = () if seen.failure else check(evidence_of(site, seen, flags))
    findings = tuple(
        finding.model_copy(update={"tolerated": sweep.tolerate.get(finding.name)})
        for finding in findings
    ) + check_profiles(seen.profiles)
    measured = tuple(probed.measurement for probed in seen.probed)
    findings += check_clients(seen.clients, measured)
    port = _port(seen) or "<free port>"
    hidden = secret_env(site.engine, secrets)
    env = engine_env(sweep, host, trial.arm, trial.levels, seen.joint) | hidden
    argv = engine_argv(
        sweep,
        host,
        trial.arm,
        trial.levels,
        port=port,
        python=site.python,
        api_key=secrets.api_key,
        joint=seen.joint,
    )
    return TrialRecord(
        sweep=sweep.name,
        sweep_run=seen.sweep_run,
        trial=trial.id,
        attempt=site.keep.attempt,
        arm=trial.arm,
        baseline=trial.arm == sweep.baseline,
        levels=trial.levels,
        block=trial.block,
        order=trial.order,
        host=trial.host,
        host_class=host.host_class,
        rehearsal=host.rehearsal,
        fingerprint=fingerprint(trial, seen.survey),
        status=_status(seen.failure, any(finding.tolerated is None for finding in findings)),
        failure=_masked(seen.failure, site.mask),
        findings=findings,
        command=tuple(site.mask.text(word) for word in argv),
        environment=site.mask.env(env, hidden),
        asked={flag: str(value) for flag, value in flags.items()},
        effective=seen.effective,
        must_match=must_match(site, seen),
        start=start_times(seen.start),
        stages=seen.times,
        patches=seen.patches,
        measurements=measured,
        profiles=seen.profiles,
        clients=seen.clients,
        started_at=seen.began.isoformat(timespec="seconds"),
        ended_at=seen.ended.isoformat(timespec="seconds"),
        versions=versions(seen.survey),
        topology=site.topology,
        models=_models(site, seen),
        synthetic=synthetic_of(flags, env),
        notes=tuple(site.mask.text(note) for note in _notes(seen)),
        nodes=seen.nodes,
    )


def _masked(failure: Failure | None, mask: Mask) -> Failure | None:
    """A failure in words that may be kept: they come from logs and answers of the engine."""
    if failure is None:
        return None
    lines = tuple(mask.text(line) for line in failure.first_lines)
    return failure.model_copy(update={"message": mask.text(failure.message), "first_lines": lines})


def bare_record(
    sweep: Sweep, trial: Trial, sweep_run: str, attempt: int, now: datetime
) -> TrialRecord:
    """The record of an attempt of which nothing was seen: skipped, or killed without a word."""
    stamp = now.isoformat(timespec="seconds")
    return TrialRecord(
        sweep=sweep.name,
        sweep_run=sweep_run,
        trial=trial.id,
        attempt=attempt,
        arm=trial.arm,
        baseline=trial.arm == sweep.baseline,
        levels=trial.levels,
        block=trial.block,
        order=trial.order,
        host=trial.host,
        host_class="unknown",
        rehearsal=False,
        fingerprint="unknown",
        status="skipped",
        failure=None,
        findings=(),
        command=(),
        environment={},
        asked={},
        effective={},
        must_match={},
        start={},
        stages=(),
        patches=(),
        measurements=(),
        started_at=stamp,
        ended_at=stamp,
        versions=versions(None),
        notes=(),
    )


def _models(site: Site, seen: Seen) -> dict[str, str]:
    """Which content the target and this arm's drafter had."""
    known = seen.survey.identities if seen.survey else {}
    drafter = drafter_of(site.sweep.arms[site.trial.arm].speculation)
    folders = {"target": site.engine.model, "drafter": drafter}
    return {name: known[folder] for name, folder in folders.items() if folder in known}


def must_match(site: Site, seen: Seen) -> dict[str, str]:
    """What two comparable trials share: all that is neither arm, factor nor block."""
    facts = dict(seen.survey.must_match) if seen.survey else {}
    facts |= limits_in_effect(site.engine.kind, seen.effective)
    for outcome in seen.patches:
        # "inserted now" and "there already" are one source: its hash is what matters.
        facts[f"patch:{outcome.name}"] = outcome.sha256_after or "none"
    facts["probes"] = hash_of(
        {n: probe.model_dump(mode="json") for n, probe in streams_of(site.sweep.probes).items()}
    )
    facts["time_scale"] = f"{site.host.time_scale:g}"
    return facts


def limits_in_effect(engine: EngineKind, effective: dict[str, str]) -> dict[str, str]:
    """What must be equal of the settings in effect, under the name that all engines share.

    vLLM sets its graphs by the tokens of a step, more of them when it speculates: its own affair.
    """
    match engine:
        case "sglang":
            names = {name: name for name in ("max-running-requests", "cuda-graph-max-bs")}
        case "vllm":
            names = {"max-num-seqs": "max-running-requests"}
        case _:
            assert_never(engine)
    return {one: effective[name] for name, one in names.items() if name in effective}


def start_times(start: StartFacts | None) -> dict[str, float]:
    """Seconds of each part of the start, where the log says them."""
    if start is None:
        return {}
    parts = {
        "start_s": start.start_s,
        "distributed_init_s": start.distributed_init_s,
        "load_s": start.load_s,
        "draft_load_s": start.draft_load_s,
        "capture_s": start.capture_s,
        "draft_capture_s": start.draft_capture_s,
        "warmup_s": start.warmup_s,
    }
    return {name: value for name, value in parts.items() if value is not None}


def versions(survey: Survey | None) -> dict[str, str]:
    """Versions on the host, and ours."""
    ours = {"eagle3_sweep": product_version(), "controller_python": platform.python_version()}
    return ({**survey.versions} if survey else {}) | ours


def _status(failure: Failure | None, found: bool) -> Status:
    if failure is not None:
        return "failed"
    return "suspect" if found else "ok"


def _port(seen: Seen) -> int | None:
    return seen.start.port if seen.start else None


def _notes(seen: Seen) -> list[str]:
    notes = list(seen.notes)
    if seen.start is not None:
        notes += [f"start: {warning}" for warning in seen.start.warnings]
    if seen.survey is not None:
        notes += [f"host: {warning}" for warning in seen.survey.gpus.warnings]
    for probed in seen.probed:
        measured = probed.measurement
        place = f"{measured.probe} c{measured.concurrency}"
        notes += [f"{place}: {remark}" for remark in probed.remarks]
        if probed.gpus is not None and probed.gpus.trouble is not None:
            notes.append(f"{place}: clocks and neighbours are unknown: {probed.gpus.trouble}")
    return notes
