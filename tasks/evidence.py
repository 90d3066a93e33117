"""Gathers what the guards of tasks/check look at, from what the stages of a trial saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.speculation import most_drafts
from tasks.check_facts import DecodeFacts, Evidence, ProbeFacts, ServerFacts
from tasks.decode_log import DecodeLog
from tasks.decode_summary import DecodeSetting
from tasks.prompts import base_id

if TYPE_CHECKING:
    from configs.names import FlagValue
    from tasks.drive import Probed
    from tasks.record_trial import Seen
    from tasks.venue import Site


def evidence_of(site: Site, seen: Seen, flags: dict[str, FlagValue]) -> Evidence:
    """All that the guards look at."""
    return Evidence(server_facts(seen, flags), tuple(probe_facts(site, seen)))


def server_facts(seen: Seen, flags: dict[str, FlagValue]) -> ServerFacts:
    """What is known of the server and its host."""
    info = seen.info
    return ServerFacts(
        speculating=seen.speculating,
        speculation_active=info.spec_active if info else None,
        max_running_requests=info.max_running_requests if info else None,
        asked={flag: str(value) for flag, value in flags.items()},
        effective=seen.effective,
        foreign_processes=seen.strangers,
    )


def probe_facts(site: Site, seen: Seen) -> list[ProbeFacts]:
    """Every measurement with what is needed to judge it."""
    return [_one(site, seen, probed) for probed in seen.probed]


def _one(site: Site, seen: Seen, probed: Probed) -> ProbeFacts:
    probe = site.sweep.probes[probed.measurement.probe]
    return ProbeFacts(
        measurement=probed.measurement,
        speculating=seen.speculating,
        draft_steps=most_drafts(site.sweep.arms[site.trial.arm].speculation) or None,
        cold=probe.flush,
        distinct_prompts=len({base_id(name) for name in probed.measurement.output_shas}) or None,
        notes=probed.remarks,
        decode=decode_facts(probed.log),
    )


def decode_facts(log: str) -> DecodeFacts | None:
    """What the engine's decode lines said during a probe; None where there were none."""
    reader = DecodeLog(DecodeSetting(busy_before=True))
    reader.feed(log.encode())
    summary = reader.finish()
    if summary.samples_used == 0:
        return None
    share = summary.graph_used_share
    outside = 0 if share is None else round((1 - share) * summary.samples_used)
    return DecodeFacts(
        lines=summary.samples_used,
        outside_graph=outside,
        most_running=summary.running_req,
        most_queued=summary.queue_req_max,
    )
