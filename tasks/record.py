"""What is kept of a trial: the values that a run folder holds and MLflow indexes."""

from __future__ import annotations

from typing import Literal

from configs.synthetic import Synthetic
from configs.values import Value
from tasks.client_record import ClientRun
from tasks.node_facts import NodeFacts
from tasks.profile_record import StepProfile
from tasks.topology import Topology

# Schema history of record.json:
# 1 - first shape.
# 2 - measurements gain counter_accept_length, output_tokens, finish_reasons, and two further words
#     in counts_from; parts of acceptance gain low and high. Records of 1 are read as they are.
# 3 - records gain profiles, topology, models (which content target and drafter had) and synthetic
#     (what was made up), clients (runs of the engine's own load generator); must_match gains the content of model folders. Records of 1 and 2 are read as they are.
# 4 - records gain nodes. Records of 1 to 3 are read as they are.
SCHEMA = 4

Status = Literal["ok", "suspect", "failed", "skipped"]
CountsFrom = Literal["requests", "counters", "server_average", "none", "not_claimed"]
"""Where speculation counts come from: the requests' own, else the growth of the engine's counters
over the measurement, else the server's average since the flush before it, else nowhere.
``not_claimed``: random tokens, whose acceptance says nothing about text."""


class Sample(Value):
    """One request's times and speculation counts.

    Times are seconds on the host's monotonic clock since the probe's start, already multiplied
    by the host's time scale (1 except on the rehearsal host).
    """

    id: str
    """The prompt's id in its prompt file, with a suffix when a prompt is used again."""
    kind: str
    """Kind of text: code, maths, prose, extraction, chat, ..."""
    sent_s: float
    """When the request was sent."""
    first_s: float | None
    """When the first token arrived; None when none did."""
    last_s: float | None
    """When the last token arrived."""
    done_s: float
    """When the response ended or the error was known."""
    prompt_tokens: int | None
    """Tokens of the prompt as the engine counted them."""
    completion_tokens: int
    """Tokens generated."""
    cached_tokens: int | None
    """Prompt tokens taken from the prefix cache; None where the engine does not say."""
    verify_steps: int | None
    """Verify steps of the target for this request; None without speculation."""
    accepted: int | None
    """Draft tokens accepted, without the bonus token."""
    proposed: int | None
    """Draft tokens proposed."""
    histogram: tuple[int, ...] | None
    """Verify steps by number of accepted drafts (index 0 = none accepted)."""
    retractions: int | None
    """How often the scheduler took the request back for want of KV cache."""
    finish: str | None
    """Finish reason: length, stop, abort; None when it did not finish."""
    chunks: tuple[tuple[float, int], ...]
    """(time, cumulative completion tokens) of every chunk."""
    output_sha: str | None
    """SHA-256 prefix over the output token ids, to compare outputs between arms."""
    unique_ngram_ratio: float | None
    """Distinct 4-grams of output tokens over all of them; loops come out near 0."""
    error: str | None
    """Error class, or None."""


class ClientHealth(Value):
    """How the load client itself did; a probe limited by its client is suspect."""

    loop_lag_p50_s: float
    loop_lag_p99_s: float
    loop_lag_max_s: float
    send_delay_p99_s: float
    cpu_s: float
    cpu_share: float


class Percentiles(Value):
    """p50, p90 and p99 of a time, in seconds."""

    p50: float
    p90: float
    p99: float


class Lengths(Value):
    """p50 and p90 of a length, in tokens."""

    p50: float
    p90: float


class KindAcceptance(Value):
    """Acceptance of one kind of text, or of one part of the outputs."""

    name: str
    requests: int
    verify_steps: int
    accepted: int
    accept_length: float
    """Tokens per verify step, the bonus token included."""
    low: float | None = None
    """95 % interval of the accept length over prompts as clusters (tasks/clusters); None with
    fewer than three different prompts."""
    high: float | None = None


class Measurement(Value):
    """What one probe measured at one concurrency. The meaning of each figure: tasks/metrics.py."""

    probe: str
    concurrency: int
    requested: int
    completed: int
    failed: int
    window_s: float | None
    """Length of the steady window (in-flight >= 90 % of the concurrency)."""
    full_s: float
    """From the first request sent to the last one done."""
    output_tok_s: float | None
    """Generated tokens in the steady window / its length; None when there was no such window."""
    full_output_tok_s: float | None
    """All generated tokens / full_s."""
    user_tok_s: float | None
    """Mean over requests of (tokens - 1) / (last - first)."""
    step_s: float | None
    """accept_length / user_tok_s."""
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    e2e_s: Percentiles | None
    prompt_tokens: int | None
    completion_tokens: int
    cached_tokens: int | None
    verify_steps: int | None
    accepted: int | None
    proposed: int | None
    histogram: tuple[int, ...] | None
    accept_length: float | None
    """1 + accepted / verify steps; 1 by definition without speculation."""
    draft_accept_rate: float | None
    accept_at_k: tuple[float, ...] | None
    """Share of verify steps that accepted at least k drafts, k = 1, 2, ..."""
    accept_at_k_conditional: tuple[float, ...] | None
    """Share of steps that accepted k drafts among those that accepted k - 1."""
    by_kind: tuple[KindAcceptance, ...]
    counts_from: CountsFrom
    """Where the speculation counts come from."""
    retractions: int | None
    server_accept_length: float | None = None
    """The server's own average since the cache was flushed before this measurement; beside ours,
    for a cross-check. It counts the first token too and lags by up to 40 decode steps."""
    counter_accept_length: float | None = None
    """By the growth of the engine's own counters over this measurement, all ranks; beside ours,
    for a cross-check. None where it has none (/metrics is not enabled, SGLang before 0.5.13)."""
    natural_stops: int
    """Completed requests that ended by themselves and not at the token limit."""
    output_tokens: Lengths | None = None
    """Generated tokens per completed request."""
    finish_reasons: dict[str, int] = {}
    """Completed requests by finish reason (length, stop, ...); ``unknown`` where none was given."""
    unique_ngram_ratio: float | None
    """Median over requests."""
    output_shas: dict[str, str]
    """Request id -> output hash, to compare outputs between arms at temperature 0."""
    client: ClientHealth | None


class Finding(Value):
    """One reason to distrust a trial."""

    name: str
    """Machine name, a row of the table in tasks/check.py."""
    where: str
    """Probe and concurrency ("load c8"), or "server", "host", "client"."""
    evidence: str
    """What was seen, with the figure."""
    limit: str
    """What would have been right."""
    advice: str
    """What to do."""
    tolerated: str | None = None
    """Why the sweep says that it may be; then it does not make the trial suspect."""


class Failure(Value):
    """Why a trial failed."""

    stage: str
    """The stage of the trial (tasks/stages)."""
    start_stage: str | None
    """The engine's own start stage, where the failure lies in its start."""
    failure_class: str
    """A name of the table in tasks/failure_table.py."""
    message: str
    """First cause in one line."""
    first_lines: tuple[str, ...]
    """The first lines of evidence (log or error), secrets masked."""
    remedy: str
    rank: str | None
    """First failing rank, e.g. TP2."""
    retry: str
    """no, same_once, after_change, after_gpus_free."""


class StageTime(Value):
    """How long a stage took."""

    name: str
    seconds: float
    attempts: int
    outcome: Literal["done", "failed", "skipped"]
    note: str
    """What the stage has to say in one line, e.g. 'inserted 3 methods'."""


class PatchOutcome(Value):
    """What a patch did to the host's copy of the engine."""

    name: str
    action: Literal["insert", "complete_already", "refuse"]
    reason: str
    path: str
    sha256_before: str | None
    sha256_after: str | None
    methods: tuple[str, ...]
    diff: str


class TrialRecord(Value):
    """Everything kept of a trial, except the bulky files beside it."""

    schema_version: int = SCHEMA
    sweep: str
    sweep_run: str
    """Id of the sweep's run; all of its trials share it."""
    trial: str
    """Id of the trial within the plan: b01-<arm>-<levels>."""
    attempt: int
    arm: str
    baseline: bool
    """Whether the arm is the sweep's baseline arm."""
    levels: dict[str, str]
    """Factor -> level."""
    block: int
    order: int
    """Place in the sweep's order."""
    host: str
    host_class: str
    """What makes hosts comparable: GPU name x count, from the host file or the survey."""
    rehearsal: bool
    """True on the pretend host: no claim about any GPU."""
    fingerprint: str
    """Hash of everything that may change the numbers (tasks/fingerprint)."""
    status: Status
    failure: Failure | None
    findings: tuple[Finding, ...]
    command: tuple[str, ...]
    """The engine's argv."""
    environment: dict[str, str]
    """What was added to the engine's environment; secrets masked."""
    asked: dict[str, str]
    """Flags asked for, by full name without dashes."""
    effective: dict[str, str]
    """Settings that the server said it uses."""
    must_match: dict[str, str]
    """Facts that two comparable trials share: target, engine version, patch, driver, ..."""
    start: dict[str, float]
    """start_s, load_s, capture_s, ... from the start log (seconds)."""
    stages: tuple[StageTime, ...]
    patches: tuple[PatchOutcome, ...]
    measurements: tuple[Measurement, ...]
    profiles: tuple[StepProfile, ...] = ()
    """Where the time of decode steps went; no figure of speed."""
    clients: tuple[ClientRun, ...] = ()
    """What the engine's own load generator said of the same traffic; beside ours, in no ratio."""
    started_at: str
    """ISO 8601 with offset, the controller's clock, for display only."""
    ended_at: str
    versions: dict[str, str]
    """engine, torch, driver, eagle3_sweep, python."""
    topology: Topology | None = None
    """How the host's GPUs hang together, as the sweep found it at its arrival; None: not known."""
    models: dict[str, str] = {}
    """``target`` and ``drafter`` -> identity of the folder's content, as `eagle3-sweep inspect`
    prints it; without what could not be read. Since schema 3."""
    notes: tuple[str, ...]
    synthetic: Synthetic | None = None
    """What was made up: weights, acceptance; None: nothing. Since schema 3."""
    nodes: tuple[NodeFacts, ...] = ()
    """Of a place of several nodes, each of them; empty on a single host. Since schema 4."""
