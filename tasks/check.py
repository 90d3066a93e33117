"""From a trial's figures to findings: every guard of the table, looked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.check_host import HOST_LOOKS
from tasks.check_limits import Limits
from tasks.check_probe import PROBE_LOOKS
from tasks.check_server import SERVER_LOOKS
from tasks.check_table import BY_NAME
from tasks.record import Finding

if TYPE_CHECKING:
    from tasks.check_facts import Evidence


def check(evidence: Evidence, limits: Limits | None = None) -> tuple[Finding, ...]:
    """Every reason to distrust the trial, server and host first, then probe by probe.

    A trial with findings is ``suspect`` and enters no ratio. What is unknown trips nothing,
    except the speculation counts: a drafter whose acceptance is not known is not measured.
    """
    limits = limits or Limits()
    found = [
        _finding(name, BY_NAME[name].scope, seen, limits)
        for name, look in SERVER_LOOKS
        if (seen := look(evidence.server, limits)) is not None
    ]
    for probe in evidence.probes:
        where = f"{probe.measurement.probe} c{probe.measurement.concurrency}"
        found += [
            _finding(name, where, seen, limits)
            for name, look_at in (*PROBE_LOOKS, *HOST_LOOKS)
            if (seen := look_at(probe, evidence.server, limits)) is not None
        ]
    return tuple(found)


def _finding(name: str, where: str, evidence: str, limits: Limits) -> Finding:
    guard = BY_NAME[name]
    return Finding(
        name=name,
        where=where,
        evidence=evidence,
        limit=guard.limit.format(**limits.model_dump()),
        advice=guard.advice,
    )
