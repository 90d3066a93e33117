"""Valid values with defaults, so that a test states only what it is about."""

from __future__ import annotations

from typing import Any

from tasks.record import (
    ClientHealth,
    Failure,
    Finding,
    Measurement,
    PatchOutcome,
    Percentiles,
    Sample,
    StageTime,
    TrialRecord,
)


def sample(
    id: str = "p1",  # noqa: A002 - the field's name
    *,
    sent_s: float = 0.0,
    ttft_s: float = 0.1,
    tok_s: float = 100.0,
    tokens: int = 65,
    step: int = 1,
    speculating: bool = False,
    **fields: Any,
) -> Sample:
    """A request whose tokens arrive ``step`` at a time at ``tok_s``, one first, all consistent."""
    first = sent_s + ttft_s
    chunks = [(first, 1)]
    while chunks[-1][1] < tokens:
        count = min(tokens, chunks[-1][1] + step)
        chunks.append((first + (count - 1) / tok_s, count))
    last = chunks[-1][0]
    steps = len(chunks) - 1
    accepted = tokens - 1 - steps
    values: dict[str, Any] = {
        "id": id,
        "kind": "code",
        "sent_s": sent_s,
        "first_s": first,
        "last_s": last,
        "done_s": last,
        "prompt_tokens": 40,
        "completion_tokens": tokens,
        "cached_tokens": 0,
        "verify_steps": steps if speculating else None,
        "accepted": accepted if speculating else None,
        "proposed": 3 * steps if speculating else None,
        "histogram": None,
        "retractions": 0,
        "finish": "length",
        "chunks": tuple(chunks),
        "output_sha": "ab" * 8,
        "unique_ngram_ratio": 0.9,
        "error": None,
    }
    return Sample(**(values | fields))


def closed_loop(concurrency: int = 4, rounds: int = 10, **fields: Any) -> tuple[Sample, ...]:
    """``concurrency`` streams of ``rounds`` requests, each sent as the one before ends."""
    samples = []
    for slot in range(concurrency):
        at = 0.0
        for turn in range(rounds):
            samples.append(sample(f"p{slot}.{turn}", sent_s=at, **fields))
            at = samples[-1].done_s
    return tuple(samples)


def client(**fields: float) -> ClientHealth:
    """A client that was idle most of the time."""
    values = {
        "loop_lag_p50_s": 0.0002,
        "loop_lag_p99_s": 0.002,
        "loop_lag_max_s": 0.01,
        "send_delay_p99_s": 0.001,
        "cpu_s": 3.0,
        "cpu_share": 0.1,
    }
    return ClientHealth(**(values | fields))


def measurement(
    *,
    probe: str = "load",
    concurrency: int = 8,
    user_tok_s: float | None = 100.0,
    accept_length: float | None = 1.0,
    **fields: Any,
) -> Measurement:
    """A probe in which all went well; throughput follows from the users' speed."""
    requests = 10 * concurrency
    speculating = accept_length is not None and accept_length > 1.0
    steps = 10_000 if speculating else None
    accepted = round((accept_length - 1) * 10_000) if accept_length and speculating else None
    values: dict[str, Any] = {
        "probe": probe,
        "concurrency": concurrency,
        "requested": requests,
        "completed": requests,
        "failed": 0,
        "window_s": 60.0,
        "full_s": 66.0,
        "output_tok_s": user_tok_s * concurrency if user_tok_s else None,
        "full_output_tok_s": 0.9 * user_tok_s * concurrency if user_tok_s else None,
        "user_tok_s": user_tok_s,
        "step_s": accept_length / user_tok_s if accept_length and user_tok_s else None,
        "ttft_s": Percentiles(p50=0.1, p90=0.15, p99=0.2),
        "tpot_s": Percentiles(p50=0.010, p90=0.011, p99=0.012),
        "e2e_s": Percentiles(p50=2.6, p90=2.8, p99=3.0),
        "prompt_tokens": 40 * requests,
        "completion_tokens": 256 * requests,
        "cached_tokens": 0,
        "verify_steps": steps,
        "accepted": accepted,
        "proposed": 30_000 if speculating else None,
        "histogram": None,
        "accept_length": accept_length,
        "draft_accept_rate": accepted / 30_000 if accepted is not None else None,
        "accept_at_k": (0.75, 0.5, 0.35) if speculating else None,
        "accept_at_k_conditional": (0.75, 0.667, 0.7) if speculating else None,
        "by_kind": (),
        "counts_from": "requests" if speculating else "none",
        "retractions": 0,
        "server_accept_length": None,
        "natural_stops": 0,
        "unique_ngram_ratio": 0.9,
        "output_shas": {},
        "client": client(),
    }
    return Measurement(**(values | fields))


def finding(**fields: str) -> Finding:
    """A reason to distrust a trial."""
    values = {
        "name": "drafter_not_working",
        "where": "load c8",
        "evidence": "accept length 1.00",
        "limit": "above 1.02",
        "advice": "check that the drafter belongs to this target",
    }
    return Finding(**(values | fields))


def failure(**fields: Any) -> Failure:
    """A start that failed for want of the EAGLE-3 hook."""
    values: dict[str, Any] = {
        "stage": "wait_ready",
        "start_stage": "draft",
        "failure_class": "target_lacks_eagle3_hook",
        "message": "AttributeError: no attribute 'set_eagle3_layers_to_capture'",
        "first_lines": ("Traceback (most recent call last):", "AttributeError: ..."),
        "remedy": "apply the patch kimi-k25-eagle3",
        "rank": "TP0",
        "retry": "after_change",
    }
    return Failure(**(values | fields))


def record(
    arm: str = "base",
    block: int = 1,
    measurements: tuple[Measurement, ...] | None = None,
    **fields: Any,
) -> TrialRecord:
    """A trial that went well."""
    levels = fields.get("levels", {})
    label = "-".join([arm, *levels.values()])
    baseline = fields.get("baseline", arm == "base")
    values: dict[str, Any] = {
        "sweep": "kimi",
        "sweep_run": "run1",
        "trial": f"b{block:02d}-{label}",
        "attempt": 1,
        "arm": arm,
        "baseline": baseline,
        "levels": {},
        "block": block,
        "order": block * 10,
        "host": "h1",
        "host_class": "H200 x8",
        "rehearsal": False,
        "fingerprint": "f" * 12,
        "status": "ok",
        "failure": None,
        "findings": (),
        "command": ("python3", "-m", "sglang.launch_server", "--model-path", "/models/kimi k2.5"),
        "environment": {"NCCL_PROTO": "LL"},
        "asked": {"tp-size": "8"},
        "effective": {"tp_size": "8"},
        "must_match": {"target": "kimi-k2.5", "engine": "sglang 0.5.9", "driver": "580.95"},
        "start": {"start_s": 300.0},
        "stages": (StageTime(name="launch", seconds=300.0, attempts=1, outcome="done", note=""),),
        "patches": (),
        "measurements": (measurement(),) if measurements is None else measurements,
        "started_at": "2026-03-01T22:00:00+00:00",
        "ended_at": "2026-03-01T22:20:00+00:00",
        "versions": {"engine": "0.5.9"},
        "notes": (),
    }
    return TrialRecord(**(values | fields))


def patch_outcome(**fields: Any) -> PatchOutcome:
    """The hooks of kimi_k25.py, inserted."""
    values: dict[str, Any] = {
        "name": "kimi-k25-eagle3",
        "action": "insert",
        "reason": "0.5.9 lacks 3 methods",
        "path": "/opt/sglang/srt/models/kimi_k25.py",
        "sha256_before": "a" * 64,
        "sha256_after": "b" * 64,
        "methods": ("set_eagle3_layers_to_capture",),
        "diff": "--- a\n+++ b\n@@ -1 +1,2 @@\n x\n+    def set_eagle3_layers_to_capture(self):\n",
    }
    return PatchOutcome(**(values | fields))


def speeds(
    arm: str, by_block: dict[int, dict[int, float]], accept_length: float = 1.0, **fields: Any
) -> list[TrialRecord]:
    """Records of one arm from block -> concurrency -> users' speed."""
    return [
        record(
            arm,
            block,
            tuple(
                measurement(concurrency=c, user_tok_s=speed, accept_length=accept_length)
                for c, speed in ladder.items()
            ),
            **fields,
        )
        for block, ladder in by_block.items()
    ]
