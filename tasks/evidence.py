"""Gathers what the guards of tasks/check look at, from what the stages of a trial saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.layers import arm_flags
from configs.probe import rungs_of
from configs.speculation import most_drafts
from configs.synthetic import synthetic_of
from tasks.check_facts import DecodeFacts, Evidence, ProbeFacts, ServerFacts
from tasks.decode_lines import DecodeSample, read_statistics
from tasks.decode_log import DecodeLog
from tasks.decode_summary import DecodeSetting
from tasks.gpu_look import arrivals
from tasks.launch import engine_env
from tasks.log_lines import LogReader
from tasks.prompts import base_id

if TYPE_CHECKING:
    from configs.names import FlagValue
    from configs.synthetic import Synthetic
    from tasks.drive import Probed
    from tasks.record_trial import Seen
    from tasks.server_info import ServerInfo
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
        graph_max_bs=info.cuda_graph_max_bs if info else None,
        ranks=(info.dp_size if info else None) or 1,
        asked={flag: str(value) for flag, value in flags.items()},
        effective=seen.effective,
        foreign_processes=_strangers(seen),
        clock=seen.clock,
        unstable=seen.unstable,
    )


def _place(probed: Probed) -> str:
    return f"{probed.measurement.probe} c{probed.measurement.concurrency}"


def _strangers(seen: Seen) -> tuple[str, ...]:
    """Who came onto the GPUs, each once: as seen under load, else as seen at the end."""
    came = arrivals((_place(probed), probed.gpus) for probed in seen.probed)
    return (*came, *(who for who in seen.strangers if not any(c.startswith(who) for c in came)))


def probe_facts(site: Site, seen: Seen) -> list[ProbeFacts]:
    """Every measurement with what is needed to judge it."""
    return [_one(site, seen, probed) for probed in seen.probed]


def _one(site: Site, seen: Seen, probed: Probed) -> ProbeFacts:
    info = seen.info
    measured = probed.measurement
    probe = rungs_of(site.sweep.probes)[measured.probe]
    claimed = measured.counts_from != "not_claimed"
    made_up = _made_up(site)
    # Loops are a matter of acceptance too: answers to noise do loop, and so do made-up ones.
    if not claimed or made_up is not None:
        measured = measured.model_copy(update={"unique_ngram_ratio": None})
    return ProbeFacts(
        measurement=measured,
        speculating=seen.speculating and claimed,
        simulated=made_up.accept_length if made_up else None,
        draft_steps=most_drafts(site.sweep.arms[site.trial.arm].speculation) or None,
        cold=probe.flush,
        distinct_prompts=len({base_id(name) for name in probed.measurement.output_shas}) or None,
        notes=probed.remarks,
        decode=decode_facts(probed.log, _limit_of_a_rank(info) if info else None),
        gpus=probed.gpus.gpus if probed.gpus else (),
    )


def _made_up(site: Site) -> Synthetic | None:
    """What of this trial's engine is made up."""
    arm, levels = site.trial.arm, site.trial.levels
    return synthetic_of(
        arm_flags(site.sweep, arm, levels), engine_env(site.sweep, site.host, arm, levels)
    )


def _limit_of_a_rank(info: ServerInfo) -> int | None:
    """How many requests one data-parallel rank may run; decode lines are of one rank."""
    if info.max_running_requests_per_dp is not None or (info.dp_size or 1) > 1:
        return info.max_running_requests_per_dp
    return info.max_running_requests


def decode_facts(log: str, limit: int | None = None) -> DecodeFacts | None:
    """What the engine's decode lines said during a probe; None where there were none.

    Args:
        log: what the engine printed meanwhile.
        limit: how many requests a rank may run; None: unknown.
    """
    data = log.encode()
    reader = DecodeLog(DecodeSetting(busy_before=True))
    reader.feed(data)
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
        waiting_below_limit=_waiting(data, limit),
    )


def _waiting(log: bytes, limit: int | None) -> int:
    """Decode lines with a queue although fewer requests ran than may: they wait for memory.

    A scheduler prefers new requests to decoding, so that a queue at a decode step is one that it
    cannot serve (sglang 0.5.9, get_next_batch_to_run); without a limit nothing is said.
    """
    reader = LogReader()
    lines = (read_statistics(line) for line in (*reader.feed(log), *reader.finish()))
    return sum(
        isinstance(line, DecodeSample)
        and bool(line.queued)
        and line.running is not None
        and limit is not None
        and line.running < limit
        for line in lines
    )
