"""Traffic on the server: one closed loop, and one probe at one concurrency."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from configs.speculation import Off, most_drafts
from configs.values import Value
from infra.store import write_json
from tasks.asking import flush_path, flushed, request
from tasks.counter_counts import Answered, Told, disagreement
from tasks.failures import failure_of
from tasks.gpu_look import GpuLook, read_look
from tasks.measure import measure
from tasks.odd_answers import odd_answers
from tasks.prepare import facts_to_keep
from tasks.record import ClientHealth, Measurement
from tasks.samples import read_rows
from tasks.tear_down import end_engine
from tasks.venue import StageFailedError, failed
from tasks.wait_ready import drive_request, http_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.probe import Profile, Stream
    from configs.releases import EngineKind
    from infra.host_agent import Poll
    from tasks.follow import Follower
    from tasks.launch import Handle
    from tasks.meter import Meter
    from tasks.venue import Site
    from tasks.wait_ready import Question

_MARGIN_S = 30.0
_QUIET_S = 1.0
_LAST_ROWS_S = 1.0
FLUSH_S = 10.0
_NO_SUCH_PATH = (401, 403, 404, 405)
# Why a load client stopped by itself -> the class of that.
_STOPPED = {"disk_full": "disk_full", "lease_expired": "lease_expired", "deadline": "hang"}


class Text(NamedTuple):
    """One prompt, rendered as the engine gets it."""

    id: str
    kind: str
    text: str
    ids: tuple[int, ...] | None = None
    """Token ids, sent instead of the text."""


class Server(NamedTuple):
    """A server that is up, who watches it, and who looks at its counters."""

    site: Site
    follower: Follower
    handle: Handle
    meter: Meter


class Load(NamedTuple):
    """One closed loop: these requests, so many at once."""

    stage: str
    """Of the trial."""
    job: str
    probe: Stream
    requests: list[dict[str, Any]]
    concurrency: int


class Probed(Value):
    """What one probe left at one concurrency."""

    measurement: Measurement
    log: str
    """What the engine's log said meanwhile (decode lines)."""
    remarks: tuple[str, ...]
    gpus: GpuLook | None = None
    """What nvidia-smi said while the last requests ran."""


def payload(
    engine: EngineKind,
    text: Text,
    probe: Stream | Profile,
    *,
    max_new_tokens: int | None = None,
) -> dict[str, Any]:
    """The body of one request to an engine."""
    tokens = max_new_tokens or probe.sampling.max_new_tokens
    return request(engine, text.text if text.ids is None else text.ids, probe.sampling, tokens)


def probe_level(
    server: Server, name: str, probe: Stream, texts: Sequence[Text], level: int
) -> Probed:
    """One probe at one concurrency: flush, drive, fetch, measure.

    Raises:
        StageFailedError: The engine died (the partial samples are kept), or no request came back.
    """
    site, follower = server.site, server.follower
    claimed = probe.random is None
    questions = server.meter.questions() if claimed else ()
    try:
        said_before = (flush_cache if probe.flush else http_calls)(site, server.handle, questions)
    except StageFailedError:  # of an engine that died between two measurements: its own cause
        follower.raise_if_dead(follower.poll(timeout_s=0.0).poll, "probe")
        raise
    look = server.meter.before(said_before)
    requests = [
        {"id": text.id, "kind": text.kind, "payload": payload(site.engine.kind, text, probe)}
        for text in texts
    ]
    job = f"probe-{name}-c{level}"
    follower.listen()
    try:
        result = drive(server, Load("probe", job, probe, requests, level))
    finally:
        raw = fetch_samples(site, job)
    heard = follower.heard()
    reading = read_rows(raw.decode(errors="replace").splitlines(), site.host.time_scale)
    if not any(sample.error is None for sample in reading.samples):
        errors = sorted({sample.error or "" for sample in reading.samples})
        raise failed("probe", "probe_failed", f"{name} c{level}: no request came back: {errors}")
    speculation = site.sweep.arms[site.trial.arm].speculation
    said = server.meter.info()
    told = server.meter.after(look, Answered.of(reading.samples), said) if claimed else Told()
    server.meter.heard(reading.samples)
    measurement = measure(
        reading.samples,
        name,
        level,
        not isinstance(speculation, Off),
        _client(result, site.host.time_scale),
        draft_steps=most_drafts(speculation) or None,
        counters=told.counts,
        requested=len(requests),
        claimed=claimed,
    )
    beside = {"server_accept_length": said.accept_len if claimed else None}
    return Probed(
        measurement=measurement.model_copy(update=beside),
        log=heard.decode(errors="replace"),
        remarks=(
            *reading.notes,
            *told.remarks,
            *disagreement(measurement),
            *odd_answers(reading.samples, probe.sampling.max_new_tokens),
        ),
        gpus=_look(site, job, result),
    )


def flush_cache(site: Site, handle: Handle, then: Sequence[Question] = ()) -> list[dict[str, Any]]:
    """Empties the prefix cache; an engine refuses while requests run, so it is asked again.

    Args:
        site: Where.
        handle: The server.
        then: What it is asked in the same breath, once the cache is empty.

    Returns:
        The answers to that, as `tasks.wait_ready.http_calls` gives them.

    Raises:
        StageFailedError: The cache could not be emptied within ten seconds, or the server does
            not know how; a probe that was meant to be cold is not measured warm.
    """
    deadline = time.monotonic() + FLUSH_S
    engine = site.engine.kind
    path = flush_path(engine)
    while True:
        answer, *rest = http_calls(site, handle, [("POST", path, None), *then])
        if answer["error"] is not None:
            answer = {"status": 0, "body": answer["message"]}
        if flushed(engine, answer):
            return rest
        if answer["status"] in _NO_SUCH_PATH or time.monotonic() > deadline:
            raise failed(
                "probe",
                "probe_failed",
                f"the prefix cache was not emptied before the probe ({path}: "
                f"{answer['status']} {answer['body'].strip()[:200]}); flush: false measures warm",
            )
        time.sleep(0.1)


def drive(server: Server, load: Load) -> dict[str, Any]:
    """Runs one closed loop on the host and follows it and the engine at once."""
    site, follower, probe, job = server.site, server.follower, load.probe, load.job
    asked = drive_request(
        site,
        server.handle,
        load.requests,
        load.concurrency,
        timeout_s=probe.request_timeout_s,
        deadline_s=probe.timeout_s,
    )
    asked["look_at_gpus"] = load.stage == "probe"
    start: dict[str, Any] | None = site.agent.prepare(
        site.folder, job, "drive", asked, python=site.python
    )
    deadline = time.monotonic() + probe.timeout_s + _MARGIN_S
    # A server that hangs still answers /health: only tokens tell that it works.
    silence_s = min(site.sweep.patience.silence_s, probe.request_timeout_s)
    last_made, moved = (0, 0), time.monotonic()
    dead_since: float | None = None
    while True:
        followed = follower.poll(job=job, quiet_s=_QUIET_S, start=start)
        start = None
        state = followed.poll.job or {}
        if state.get("result") is None and _still_writing(followed.poll, dead_since):
            dead_since = dead_since or time.monotonic()
            continue
        if state.get("result") is None:
            follower.raise_if_dead(followed.poll, load.stage)
        else:
            result = dict(state["result"])
            if not followed.poll.engine_alive:
                follower.raise_as_dead(load.stage)
            if not result.get("ok"):
                known = _STOPPED.get(str(result.get("error")), "probe_failed")
                raise failed(load.stage, known, f"{job}: {result.get('message', result)}")
            return result
        if not state.get("alive", True):
            raise failed(
                load.stage, "probe_failed", f"{job} died: {state.get('log_tail', '')[-300:]}"
            )
        progress = state.get("progress") or {}
        made, now = (progress.get("done", 0), progress.get("tokens", 0)), time.monotonic()
        if made != last_made:
            last_made, moved = made, now
        if progress:
            site.say(f"{job} {made[0]}/{len(load.requests)} requests")
        if now - moved > silence_s:
            said = f"{job}: no token for {silence_s:g} s, after {made[1]} tokens and {made[0]} whole requests"
            raise _given_up(server, load, "not_generating", said)
        if now > deadline:
            said = f"{job} did not end in {probe.timeout_s:g} s"
            raise _given_up(server, load, "hang", said)


def _given_up(server: Server, load: Load, name: str, said: str) -> Exception:
    """The failure of an engine that makes no tokens any more; what it made so far is kept.

    It is ended first: its load client then writes down its unfinished requests, marked as such.
    """
    site, follower = server.site, server.follower
    end_engine(site, server.handle)
    until = time.monotonic() + _LAST_ROWS_S * 5
    while time.monotonic() < until:
        job = follower.poll(job=load.job, timeout_s=0.5).poll.job or {}
        if job.get("result") is not None or not job.get("alive", False):
            break
    return failed(load.stage, name, said, follower.first_lines(failure_of(name)))


def _still_writing(poll: Poll, dead_since: float | None) -> bool:
    """Whether the client of a dead engine still writes its last rows (it needs 0.25 s)."""
    if poll.engine_alive or not (poll.job or {}).get("alive", False):
        return False
    return dead_since is None or time.monotonic() - dead_since < _LAST_ROWS_S


def fetch_samples(site: Site, job: str) -> bytes:
    """The raw rows, whole or partial; kept before anything is concluded from them."""
    try:
        raw = site.agent.get(f"{site.folder}/jobs/{job}/samples.jsonl")
    except FileNotFoundError:
        return b""
    if raw:
        site.keep.samples(job, site.mask.raw(raw))
    return raw


def _look(site: Site, job: str, result: Mapping[str, Any]) -> GpuLook | None:
    """What nvidia-smi said under load; the raw texts are kept beside the samples."""
    raw = result.get("gpus")
    if raw is not None:
        write_json(site.keep.path / "gpus" / f"{job}.json", facts_to_keep(raw, site.mask))
    hello = site.agent.hello
    return read_look(raw, marker=site.marker, uid=hello.uid, user=hello.user)


def _client(result: Mapping[str, Any], time_scale: float) -> ClientHealth | None:
    """The load client's own health, in the host's time: on a faster host a lag weighs more."""
    client = result.get("client")
    if not client:
        return None
    lags = ("loop_lag_p50_s", "loop_lag_p99_s", "loop_lag_max_s", "send_delay_p99_s")
    return ClientHealth(
        **{name: float(client[name]) * time_scale for name in lags},
        cpu_s=float(client["cpu_s"]),
        cpu_share=float(client["cpu_share"]),
    )
