"""The stage that runs whatever happened: the engine gone, its GPUs free, the source put back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from configs.layers import engines_by_place
from infra.errors import AgentBroken
from tasks.patch_host import ledger_path, reverted
from tasks.prepare import judge_reaped
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from configs.host import Host
    from configs.sweep import Sweep
    from infra.host_agent import HostAgent
    from tasks.launch import Handle
    from tasks.venue import Site

_END_S = 40.0
_FORGET = """cd "$1" && rm -f server.log launch.json headers.json jobs/*/request.json jobs/facts*/result.json jobs/probe-*/result.json"""


class Torn(NamedTuple):
    """How a trial's end on the host went."""

    said: str
    strangers: tuple[str, ...]
    """Processes of others on the GPUs; there were none before the launch."""


def tear_down(site: Site, handle: Handle | None, *, grace_s: float | None = None) -> Torn:
    """Stops the engine by identity, waits until its GPU memory and port are free, reverts patches.

    Safe to ask twice, with or without a handle: processes are also found by the attempt's marker.

    Raises:
        StageFailedError: ``unkillable_process``, ``gpu_memory_held``, ``port_in_use``.
    """
    patience = site.sweep.patience
    grace = patience.stop_s if grace_s is None else grace_s
    request = {
        "groups": [_group(handle)] if handle else [],
        "markers": [site.marker],
        "processes": [],
        "grace_s": grace,
        "port": handle.port if handle else None,
        "gpu_wait_s": patience.gpu_free_s,
        "free_below_mib": None,
        "ledger": ledger_path(site.agent),
    }
    began = time.monotonic()
    result = site.agent.job(
        site.folder,
        f"reap-{int(began * 1000)}",
        "reap",
        request,
        timeout_s=grace + patience.gpu_free_s + 30,
        holder=site.holder,
    )
    if has_secrets(site.sweep, site.host):
        forget_secrets(site.agent, site.folder)
    if not result.get("ok", True):
        raise failed("tear_down", "unkillable_process", str(result.get("message")))
    judge_reaped("tear_down", result)
    told = reverted(result["files"])
    said = f"{len(result['signalled'])} processes ended in {result['seconds']:.1f} s"
    return Torn("; ".join([said, *verified(result), *told]), strangers_in(result))


def strangers_in(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Who else computed on the GPUs at the end, by name, number and owner."""
    return tuple(
        f"{other['comm'] or 'a process of another PID namespace'} "
        f"(pid {other['pid']}, user {other['user'] or other['uid'] or 'unknown'})"
        for other in result.get("others", [])
    )


def end_engine(site: Site, handle: Handle) -> None:
    """Ends an engine that makes no tokens any more, but not its load client.

    A client whose engine is gone writes down what it has and ends by itself.
    """
    request = {
        "groups": [_group(handle)],
        "markers": [],
        "processes": [],
        "grace_s": 0.0,
        "port": None,
        "gpu_wait_s": 0.0,
        "free_below_mib": None,
    }
    site.agent.job(site.folder, "end-engine", "reap", request, timeout_s=_END_S, holder=site.holder)


def verified(result: Mapping[str, Any]) -> tuple[str, ...]:
    """What was looked at after the end, and is so: unknown is not among it."""
    seen = {
        "no own process left": not result["survivors"],
        "GPU memory released": result["gpu_free"],
    }
    return tuple(text for text, true in seen.items() if true)


def _group(handle: Handle) -> dict[str, Any]:
    return {
        "pid": handle.pid,
        "pgid": handle.pgid,
        "sid": handle.sid,
        "start_ticks": handle.start_ticks,
        "boot_id": handle.boot_id,
    }


def has_secrets(sweep: Sweep, host: Host) -> bool:
    """Whether an engine of this sweep gets any value that must not be kept."""
    told = any(engine.env_from for engine in engines_by_place(sweep).values())
    return bool(host.env_from or told or host.api_key_from)


def forget_secrets(agent: HostAgent, folder: str) -> None:
    """Removes the files of an attempt on the host that may hold a secret.

    SGLang prints its whole ServerArgs, the API key with them; the probes' requests carry it, and
    the facts show it on the command line of an engine. What is worth keeping is here, masked.
    """
    agent.shell.run(["sh", "-c", _FORGET, "sh", folder], timeout_s=20.0)


def let_go(site: Site) -> None:
    """Releases the host's lock; a host that cannot be reached lets the lease do it."""
    try:
        site.agent.call("release", root=site.agent.root, holder=site.holder)
    except AgentBroken as error:
        site.say(f"the host's lock ends with its lease: {error}")
