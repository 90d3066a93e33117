"""Ends the processes of a trial and nobody else's: by identity, session, marker and descent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from infra.agent import processes
from infra.agent.processes import Environment, Process

GONE_WITHIN_S = 10.0
"""How long a process may take to go after SIGKILL before it counts as a survivor (stuck in a
driver call, for example)."""

_ROUND_S = 0.05

Table = dict[int, Process]


class Ours(NamedTuple):
    """What makes a process one of the trial's."""

    groups: Sequence[dict[str, Any]] = ()
    """Identities of session leaders with ``pgid`` and ``sid``."""
    processes: Sequence[dict[str, Any]] = ()
    """Identities of single processes."""
    markers: Sequence[str] = ()
    """Trial ids in the environment."""
    ancestors: Sequence[int] = ()
    """Living processes of ours, all of whose descendants are the trial's (the supervisor)."""
    spared: Sequence[dict[str, Any]] = ()
    """Identities of processes that stay, with their descendants, whatever else names them."""


class Ended(NamedTuple):
    """What ending the processes came to."""

    signalled: list[dict[str, Any]]
    zombies: list[dict[str, Any]]
    survivors: list[dict[str, Any]]
    pids: set[int]
    """Every pid that was found to be the trial's."""


def row(process: Process) -> dict[str, Any]:
    """A process as the report names it."""
    return {"pid": process.pid, "state": process.state, "comm": process.comm}


def members(ours: Ours, now: Table) -> dict[tuple[int, int], Process]:
    """The processes of the table that are the trial's; own user only, never us or our parents."""
    uid, spared, boot = os.getuid(), processes.lineage(now), processes.boot_id()
    everyone = [process for process in now.values() if process.uid == uid]
    kept = {p.key: p for p in everyone if p.key in _keys(ours.spared, boot)}
    _add_descendants(kept, everyone, set())
    candidates = [
        process
        for process in everyone
        if process.pid not in spared
        and process.key not in kept
        and 2 not in (process.pid, process.ppid)
    ]
    environments = processes.environments(candidates)
    named = _keys([*ours.groups, *ours.processes], boot)
    groups = [group for group in ours.groups if group.get("boot_id") == boot]
    nothing = Environment(None, blank=True)
    found = {
        process.key: process
        for process in candidates
        if process.key in named
        or environments.get(process.pid, nothing).marker in ours.markers
        or any(
            _in_group(process, group, now, environments.get(process.pid, nothing), ours.markers)
            for group in groups
        )
    }
    _add_descendants(found, candidates, set(ours.ancestors))
    return found


def _keys(idents: Sequence[dict[str, Any]], boot: str) -> set[tuple[int, int]]:
    """What identifies processes within this boot; identities of another boot name nobody."""
    return {
        (ident["pid"], ident["start_ticks"]) for ident in idents if ident.get("boot_id") == boot
    }


def _in_group(
    process: Process,
    group: dict[str, Any],
    now: Table,
    environment: Environment,
    markers: Sequence[str],
) -> bool:
    """Whether a process belongs to a recorded session or process group.

    While the leader is there (even as a zombie) its number cannot be anyone else's, so the ids
    decide. Once it is gone the number may have been given out again and left behind by another
    leader; then the environment must not speak against it: our marker, or nothing readable.
    """
    if process.sid != group["sid"] and process.pgid != group["pgid"]:
        return False
    if process.start_ticks < group["start_ticks"]:
        return False
    leader = now.get(group["pid"])
    if leader is not None:
        return leader.start_ticks == int(group["start_ticks"])
    return environment.blank or environment.marker in markers


def _add_descendants(
    found: dict[tuple[int, int], Process], candidates: list[Process], ancestors: set[int]
) -> None:
    parents = ancestors | {process.pid for process in found.values()}
    grown = True
    while grown:
        grown = False
        for process in candidates:
            if process.key not in found and process.ppid in parents:
                found[process.key] = process
                parents.add(process.pid)
                grown = True


def end(
    ours: Ours,
    grace_s: float,
    collect: Callable[[], None] = lambda: None,
    gone_within_s: float = GONE_WITHIN_S,
) -> Ended:
    """SIGTERM to the leaders, a grace, then SIGKILL to everything that is left, until it is gone.

    Only the leaders are asked politely: an engine's launcher takes its schedulers down in order,
    and schedulers that get their own SIGTERM die under it.

    Args:
        ours: What makes a process one of ours.
        grace_s: Seconds between SIGTERM and SIGKILL, cut short when the leaders are gone; 0: no
            SIGTERM, which nobody would have the time to follow.
        collect: Called in every round; a parent collects its ended children there.
        gone_within_s: Seconds after the last SIGKILL until what is left counts as a survivor.
    """
    known = members(ours, processes.table())
    signalled: list[dict[str, Any]] = []
    leaders = [processes.find(ident) for ident in [*ours.groups, *ours.processes]]
    asked = [
        leader
        for leader in leaders
        if grace_s > 0
        and leader is not None
        and leader.key in known
        and leader.state not in processes.GONE
    ]
    for leader in asked:
        _signal(leader, signal.SIGTERM, signalled)
    _await_leaders(asked, grace_s, collect)
    living = _kill_rounds(ours, known, signalled, collect, gone_within_s)
    return Ended(
        signalled=signalled,
        zombies=[row(process) for process in _still(known) if process.state in processes.GONE],
        survivors=[row(process) for process in living],
        pids={pid for pid, _ in known},
    )


def _signal(process: Process, number: int, signalled: list[dict[str, Any]]) -> None:
    if processes.send(process, number):
        signalled.append({"pid": process.pid, "signal": int(number), "comm": process.comm})


def _still(known: dict[tuple[int, int], Process]) -> list[Process]:
    """Those of the known processes that exist now, as they are now."""
    seen = [processes.look(pid) for pid, _ in known]
    return [process for process in seen if process is not None and process.key in known]


def _await_leaders(leaders: list[Process], grace_s: float, collect: Callable[[], None]) -> None:
    until = time.monotonic() + grace_s
    keys = {leader.key: leader for leader in leaders}
    while time.monotonic() < until:
        collect()
        if all(process.state in processes.GONE for process in _still(keys)):
            return
        time.sleep(_ROUND_S)


def _kill_rounds(
    ours: Ours,
    known: dict[tuple[int, int], Process],
    signalled: list[dict[str, Any]],
    collect: Callable[[], None],
    gone_within_s: float,
) -> list[Process]:
    """Kills and looks again until a look finds nothing alive; returns what would not go."""
    killed: set[tuple[int, int]] = set()
    until = time.monotonic() + gone_within_s
    while True:
        collect()
        known.update(members(ours, processes.table()))
        living = [process for process in _still(known) if process.state not in processes.GONE]
        if not living:
            return []
        for process in living:
            if process.key not in killed:
                _signal(process, signal.SIGKILL, signalled)
                killed.add(process.key)
        if time.monotonic() >= until:
            return living
        time.sleep(_ROUND_S)
