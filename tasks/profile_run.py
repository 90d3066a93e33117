"""The probe of kind profile at one concurrency: load, recording on the host, reduction here."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from configs.layers import arm_flags, gpus_by_way
from configs.speculation import drafts_with_a_model
from infra.errors import AgentRefusal
from infra.store import write_bytes
from tasks.drive import payload
from tasks.profile_record import StepProfile
from tasks.profile_rows import BadProfileError, read_trace, unpack
from tasks.profile_shares import reduce_trace
from tasks.side_job import ended, result_of
from tasks.venue import StageFailedError
from tasks.wait_ready import drive_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from configs.probe import Profile
    from tasks.drive import Server, Text

_KEPT = "profile.jsonl.gz"
_TOKENS_EACH = 16  # past the first steps, in which requests still come in
_MARGIN_S = 30.0
_LOAD_END_S = 30.0
_DOING = "recording"


def profile_level(
    server: Server, name: str, probe: Profile, texts: Sequence[Text], level: int
) -> StepProfile:
    """Records some decode steps under a load of this concurrency, and says where their time went.

    Whatever goes wrong is the profile's trouble and not the trial's: its figures were taken
    before, and stand.
    """
    bare = StepProfile(
        probe=name,
        concurrency=level,
        steps=0,
        step_us=None,
        shares=None,
        idle=None,
        drafter_asked=drafts_with_a_model(
            server.site.sweep.arms[server.site.trial.arm].speculation
        ),
        ranks_asked=_ranks(server),
    )
    try:
        result = _record(server, name, probe, texts, level)
        return _reduced(server, bare, result)
    except (StageFailedError, AgentRefusal, BadProfileError) as error:
        said = error.failure.message if isinstance(error, StageFailedError) else str(error)
        return bare.model_copy(update={"trouble": server.site.mask.text(said)[:500]})


def start_request(probe: Profile) -> dict[str, Any]:
    """The body of SGLang's /start_profile, but for the folder.

    The keys are the same from 0.5.9 to 0.5.23 (ProfileReqInput, later ProfileReq, of
    managers/io_struct.py). ``profile_by_stage`` stays off: up to 0.5.12 a prefill that comes
    while decode steps are recorded would start a second profiler in one process
    (_profile_batch_predicate). One step more is asked for, since only whole ones count.
    """
    return {
        "num_steps": probe.decode_steps + 1,
        "activities": ["CPU", "GPU"] if probe.host_events else ["GPU"],
        "with_stack": False,
        "record_shapes": False,
        "profile_by_stage": False,
    }


def _job(name: str, level: int) -> str:
    return f"profile-{name}-c{level}"


def _ranks(server: Server) -> int:
    """How many processes will leave a trace on the host that serves."""
    trial = server.site.trial
    flags = arm_flags(server.site.sweep, trial.arm, trial.levels)
    return math.prod(gpus_by_way(flags).values()) // len(server.site.nodes)


def _record(
    server: Server, name: str, probe: Profile, texts: Sequence[Text], level: int
) -> dict[str, Any]:
    """Starts load and recording on the host, and follows them and the engine at once."""
    site, job = server.site, _job(name, level)
    load = f"{job}-load"
    requests = [
        {"id": text.id, "kind": text.kind, "payload": payload(site.engine.kind, text, probe)}
        for text in texts
    ]
    driven = drive_request(
        site,
        server.handle,
        requests,
        level,
        timeout_s=probe.request_timeout_s,
        deadline_s=probe.timeout_s,
    )
    asked = {
        "port": server.handle.port,
        "headers_path": server.handle.headers_path,
        "start": start_request(probe),
        "load": load,
        "in_flight": level,
        "tokens": level * min(_TOKENS_EACH, probe.sampling.max_new_tokens),
        "ranks": _ranks(server),
        "timeout_s": probe.timeout_s,
        "keep_trace": probe.keep_trace,
    }
    prepare = functools.partial(site.agent.prepare, site.folder)
    traffic = prepare(load, "drive", driven, python=site.python)
    server.follower.poll(job=load, start=traffic, timeout_s=0.0)
    recording = prepare(job, "profile", asked)
    result = ended(server, job, probe.timeout_s + _MARGIN_S, _DOING, recording)
    ended(server, load, _LOAD_END_S, _DOING)
    return result_of(result)


def _reduced(server: Server, bare: StepProfile, result: dict[str, Any]) -> StepProfile:
    """Fetches what was kept of the trace, keeps it beside the record, and reduces it."""
    site, job = server.site, _job(bare.probe, bare.concurrency)
    data = site.agent.get(f"{site.folder}/jobs/{job}/{_KEPT}")
    write_bytes(site.keep.path / "profiles" / f"{job}.jsonl.gz", data)
    trace = read_trace(unpack(data))
    found = reduce_trace(trace, drafting=bare.drafter_asked)
    return bare.model_copy(
        update={
            "steps": found.steps,
            "step_us": None if found.step_us is None else found.step_us * site.host.time_scale,
            "shares": found.shares,
            "idle": found.idle,
            "overlap": found.overlap,
            "drafter": found.drafter,
            "told_by": found.told_by,
            "left_out": found.left_out,
            "unknown": found.unknown,
            "ranks": len(result["files"]),
            "whole": trace.whole,
            "trace_bytes": int(result["files"].get(trace.file, 0)),
        }
    )
