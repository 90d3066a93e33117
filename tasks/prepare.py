"""The stages before the engine starts: claim the host, survey it, free its GPUs."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from configs.layers import engines_by_place
from configs.plan import hash_of
from configs.speculation import drafter_of
from configs.values import Value
from infra.errors import AgentRefusal
from infra.masking import STARS
from tasks.cleanup import plan_cleanup
from tasks.gpus import GpuSurvey, survey_gpus
from tasks.process_list import read_facts
from tasks.topology import Topology, read_topology
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from configs.host import Host
    from configs.sweep import Engine, Sweep
    from infra.host_agent import HostAgent
    from infra.masking import Mask
    from tasks.process_list import Process
    from tasks.venue import Site

_FACTS_S = 60.0
# --api-key K, --hf-token=T, -password P: the value of an argument that is called after a secret.
_SECRET_ARGUMENT = re.compile(
    r"(--?[\w-]{0,40}?(?:key|token|password|secret)(?:=|\s+))\S+", re.IGNORECASE
)
_TOO_FEW = {"too_few_gpus", "no_gpus", "no_gpu_rows"}


class Survey(Value):
    """What the host is, in values that a comparison can use."""

    versions: dict[str, str]
    """engine, torch, driver, python, ..."""
    gpus: GpuSurvey
    gpu_names: tuple[str, ...]
    facts_key: str
    """Hash of what may change a trial's numbers; part of its fingerprint."""
    must_match: dict[str, str]
    """What two comparable trials share, as far as the host says it."""
    topology: Topology | None = None
    """How the GPUs hang together; asked for at a sweep's arrival alone."""
    identities: dict[str, str] = {}
    """Folder as the sweep names it -> identity of its content, of the target and the drafters."""


def claim(agent: HostAgent, holder: str, note: str, patience_s: float) -> str:
    """Takes the host's lock; waits for another holder as long as the sweep says.

    Raises:
        StageFailedError: ``host_claimed``: another sweep holds it.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            answer = agent.call(
                "claim", root=agent.root, holder=holder, lease_s=agent.host.lease_s, note=note
            )
        except AgentRefusal as refusal:
            if refusal.error != "claimed":
                raise
            if time.monotonic() > deadline:
                raise failed("claim", "host_claimed", _held(agent, refusal)) from refusal
            time.sleep(min(2.0, max(deadline - time.monotonic(), 0.1)))
            continue
        taken = answer.get("took_over")
        return (
            f"took over from {taken.get('holder')}, whose lease had ended" if taken else "claimed"
        )


def _held(agent: HostAgent, refusal: AgentRefusal) -> str:
    """By whom, for what, and until when at the latest."""
    said = refusal.answer
    left = said.get("left_s")
    until = f"; unless renewed, its lease ends in {left:.0f} s" if isinstance(left, float) else ""
    return f"{agent.host.name} is held by {said.get('holder')} ({said.get('note')}){until}"


def survey(
    site: Site, name: str = "facts", *, topology: bool = False
) -> tuple[Survey, dict[str, Any]]:
    """Asks the host what it is; returns the values and the raw facts for the record."""
    sweep, host = site.sweep, site.host
    folders = {path: site.agent.from_cwd(path) for path in model_paths(sweep)}
    raw = site.agent.job(
        site.folder,
        name,
        "facts",
        {
            "python": site.python,
            "paths": list(folders.values()),
            "ports": [host.port] if host.port else [],
            "topology": topology,
        },
        timeout_s=_FACTS_S,
        holder=site.holder,
    )
    return read_survey(raw, site.engine, host, folders), raw


def facts_to_keep(raw: Any, mask: Mask, key: str = "") -> Any:
    """Raw facts as they may be kept: command lines of processes may hold keys, ours or others'."""
    if isinstance(raw, dict):
        return {name: facts_to_keep(value, mask, str(name)) for name, value in raw.items()}
    if isinstance(raw, list):
        return [facts_to_keep(value, mask, key) for value in raw]
    if not isinstance(raw, str):
        return raw
    text = mask.text(raw)
    return _SECRET_ARGUMENT.sub(rf"\g<1>{STARS}", text) if key == "args" else text


def model_paths(sweep: Sweep) -> list[str]:
    """The target's and all drafters' folders on the host, each once."""
    drafters = (drafter_of(arm.speculation) for arm in sweep.arms.values())
    targets = (engine.model for engine in engines_by_place(sweep).values())
    return list(dict.fromkeys([*targets, *(d for d in drafters if d)]))


def read_survey(
    raw: Mapping[str, Any], asked: Engine, host: Host, folders: Mapping[str, str]
) -> Survey:
    """From raw facts to values.

    Args:
        raw: What the agent's ``facts`` gave.
        asked: The engine that is looked at.
        host: Its host.
        folders: Model folder as the sweep names it -> as the host was asked for it.
    """
    smi = raw["nvidia_smi"]
    gpus = survey_gpus(
        smi["gpus"]["stdout"] or smi["gpus"]["stderr"],
        smi["apps"]["stdout"],
        exit_code=1 if smi["gpus"]["exit"] is None else smi["gpus"]["exit"],
        wanted=host.gpus,
        free_below_mib=host.free_below_mib,
    )
    engine = raw["engine_python"]
    versions = {name: version for name, version in engine["packages"].items() if version}
    versions["python"] = engine["version"] or "unknown"
    drivers = {row.driver_version for row in gpus.gpus if row.driver_version}
    versions["driver"] = ", ".join(sorted(drivers)) or "unknown"
    names = tuple(row.name for row in gpus.gpus if row.name)
    identities = {
        named: digest
        for named, there in folders.items()
        if (digest := raw["paths"].get(there, {}).get("content"))
    }
    must_match = {
        "target": asked.model,
        "engine": f"{asked.kind} {versions.get(asked.kind, 'unknown')}",
        "torch": versions.get("torch", "unknown"),
        "driver": versions["driver"],
        "host_class": host.host_class,
        "gpus": f"{host.gpus} x {', '.join(sorted(set(names))) or 'unknown'}",
        # By content, or a drafter that was trained on between two attempts would stand beside
        # its former self under one name.
        **{f"files of {name}": identities.get(name, "unknown") for name in folders},
    }
    return Survey(
        versions=versions,
        gpus=gpus,
        gpu_names=names,
        must_match=must_match,
        topology=read_topology(raw.get("topology")),
        identities=identities,
        facts_key=hash_of(must_match),
    )


def clean_gpus(site: Site, found: Survey, raw: Mapping[str, Any]) -> str:
    """Ends what earlier trials of ours left, and refuses a host that others use.

    Raises:
        StageFailedError: ``foreign_gpu_process``, ``gpu_memory_held``, or what is wrong with the
            host's GPUs.
    """
    if not found.gpus.host_ok:
        raise failed(
            "clean_gpus",
            "too_few_gpus" if found.gpus.reason in _TOO_FEW else "driver_problem",
            f"{found.gpus.reason}: {found.gpus.message or ''}",
        )
    processes = read_facts(raw["processes"])
    markers = _started_here(site, processes)
    plan = plan_cleanup(
        processes,
        found.gpus.apps,
        markers=markers,
        current=site.marker,
        own_uid=site.agent.hello.uid,
        own_user=site.agent.hello.user,
        owns_gpus=site.host.owns_gpus,
    )
    if plan.refused:
        raise failed("clean_gpus", "foreign_gpu_process", "; ".join(plan.reasons), plan.reasons)
    if not plan.reap and found.gpus.all_free:
        return f"{len(found.gpus.free)} GPUs free"
    site.say(f"ending {len(plan.reap)} processes of earlier trials" if plan.reap else "waiting")
    result = site.agent.job(
        site.folder,
        "clean",
        "reap",
        {
            "groups": [],
            "markers": sorted(markers),
            "processes": [
                {"pid": p.pid, "start_ticks": p.start, "boot_id": raw["host"]["boot_id"]}
                for p in plan.reap
            ],
            "grace_s": site.sweep.patience.stop_s,
            "gpu_wait_s": site.sweep.patience.gpu_free_s,
            "free_below_mib": site.host.free_below_mib,
        },
        timeout_s=site.sweep.patience.stop_s + site.sweep.patience.gpu_free_s + 30,
        holder=site.holder,
    )
    judge_reaped("clean_gpus", result)
    return f"ended {len(plan.reap)} processes in {result['seconds']:.1f} s"


def _started_here(site: Site, processes: Iterable[Process]) -> set[str]:
    """The markers of earlier attempts of ours: those that have a folder in ours on this host.

    A marker alone is not enough: a sweep with another folder of its own (of another controller,
    or in another container that shares our processes) is somebody else.
    """
    seen = {process.marker for process in processes if process.marker} - {site.marker}
    lock = "{root}/trials/{marker}/supervise.lock".format  # made before any engine is started
    return {
        marker
        for marker in seen
        if "/" not in marker and site.agent.head(lock(root=site.agent.root, marker=marker), 0)
    }


def judge_reaped(stage: str, result: Mapping[str, Any]) -> None:
    """Passes a clean end on; anything else is a failure with a name.

    Raises:
        StageFailedError: ``gpu_memory_held`` or ``unkillable_process``.
    """
    outcome = result.get("outcome")
    if outcome == "survivors":
        names = ", ".join(f"{s['pid']} {s['comm']} ({s['state']})" for s in result["survivors"])
        raise failed(stage, "unkillable_process", f"still there after SIGKILL: {names}")
    if outcome == "gpu_memory_held":
        raise failed(stage, "gpu_memory_held", f"GPU memory is still held: {_used(result)}")
    if outcome == "port_held":
        raise failed(stage, "port_in_use", "the engine's port is still held after its end")


def _used(result: Mapping[str, Any]) -> str:
    """Memory in use on each GPU, from the rows index, uuid, used, total, utilization."""
    rows = ([cell.strip() for cell in str(row).split(",")] for row in result["gpus"])
    return ", ".join(f"GPU {row[0]}: {row[2]} MiB" for row in rows if len(row) > 2)
