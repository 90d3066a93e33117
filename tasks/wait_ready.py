"""The stages from launch to a server that may be measured: wait_ready and verify."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, assert_never

from configs.rules import arm_flags
from configs.speculation import Off
from configs.values import Value
from infra.errors import AgentRefusal
from tasks.asking import generation_path, model_path, question, settings_paths
from tasks.effective import effective_settings, setting_name
from tasks.failures import failure_of
from tasks.readiness import Answer, Facts, judge
from tasks.server_info import ServerInfo, read_server_info
from tasks.venue import failed, failed_as
from tasks.vllm_info import effective_flags, read_vllm_info

if TYPE_CHECKING:
    from configs.names import FlagValue
    from configs.releases import EngineKind
    from tasks.follow import Follower
    from tasks.launch import Handle
    from tasks.venue import Site

_PROMPT = "The capital of France is"
_TOKENS = 7
_GENERATION_S = 120.0
_SETTINGS_S = 60.0
_CLASS = {"wrong_model": "wrong_model_served", "timeout": "ready_timeout", "dead": "engine_dead"}


class Ready(Value):
    """A server that answered."""

    started_s: float
    """Seconds from launch to the first real answer."""
    notes: tuple[str, ...]


def wait_ready(site: Site, follower: Follower, handle: Handle) -> Ready:
    """Waits until our own process serves our model and a real generation came back.

    The ready line alone proves nothing: a server whose port is taken prints it after warming up
    on the other server. Neither does /health, which answers 200 while nothing is generated.

    Raises:
        StageFailedError: The engine died, hangs, or serves something else.
    """
    patience, began = site.sweep.patience, time.monotonic()
    follower.last_growth = began  # the launch may have taken long, over a bad line
    answers: list[Answer] = []
    asked, vain_since = 0.0, 0.0
    while True:
        followed = follower.poll()
        follower.raise_if_dead(followed.poll, "wait_ready")
        now = time.monotonic()
        ready_line = follower.start.facts().was_ready
        _show(site, follower)
        if ready_line and now - asked > 0.5:
            asked = now
            # Our own questions make the log grow; from the first one on only tokens are progress.
            vain_since = vain_since or now
            answers.append(_ask_model(site, handle, now - began))
            if answers[-1].status == 200:
                answers.append(_generate(site, follower, handle, began))
        verdict = judge(
            Facts(
                alive=True,
                log_ready=ready_line,
                answers=tuple(answers[-4:]),
                model=site.engine.model,
                silent_s=now - min(follower.last_growth, vain_since or now),
                silent_limit_s=patience.silence_s,
                waited_s=now - began,
                wait_limit_s=patience.start_s,
            )
        )
        if verdict.ready or verdict.state == "garbage_output":
            # A model that babbles is measured and marked (findings), not given up here.
            notes = () if verdict.ready else (f"garbage_output: {verdict.reason}",)
            return Ready(started_s=time.monotonic() - began, notes=notes)
        if verdict.final:
            asked_in_vain = bool(answers) and answers[-1].path == generation_path(site.engine.kind)
            late = verdict.state == "timeout" and asked_in_vain
            raise _given_up(follower, "not_generating" if late else verdict.state, verdict.reason)


def _given_up(follower: Follower, state: str, reason: str) -> Exception:
    known = follower.start.facts().failure
    if known is not None:
        return failed_as("wait_ready", known, follower.cause(known), follower.first_lines(known))
    name = _CLASS.get(state, state)
    lines = follower.first_lines(failure_of(name))
    stage = follower.start.facts().stage
    return failed("wait_ready", name, reason, lines, start_stage=stage)


def _show(site: Site, follower: Follower) -> None:
    stage, percent = follower.start.progress()
    site.say(stage if percent is None else f"{stage} {percent} %")


def _ask_model(site: Site, handle: Handle, at_s: float) -> Answer:
    path = model_path(site.engine.kind)
    try:
        answer = http(site, handle, "GET", path)
    except AgentRefusal as refusal:
        return Answer(at_s, path, None, str(refusal))
    return Answer(at_s, path, answer["status"], answer["body"], answer["seconds"])


def _generate(site: Site, follower: Follower, handle: Handle, began: float) -> Answer:
    """One real generation; one that takes longer than a short request may is driven as a job."""
    path, body = question(site.engine.kind, _PROMPT, _TOKENS, stream=False)
    try:
        answer = http(site, handle, "POST", path, json.dumps(body))
    except AgentRefusal as refusal:
        if refusal.error != "timeout":
            return Answer(time.monotonic() - began, path, None, str(refusal))
        return _generate_slowly(site, follower, handle, began)
    at = time.monotonic() - began
    return Answer(at, path, answer["status"], answer["body"], answer["seconds"])


def _generate_slowly(site: Site, follower: Follower, handle: Handle, began: float) -> Answer:
    """The same through the probes' client, detached; the first generation may compile kernels."""
    name = "ready"
    path, payload = question(site.engine.kind, _PROMPT, _TOKENS, stream=True)
    asked = drive_request(site, handle, [{"id": "ready", "kind": "ready", "payload": payload}], 1)
    site.agent.start(site.folder, name, "drive", asked, python=site.python)
    sent = time.monotonic()
    result: dict[str, Any] | None = None
    bound_s = min(_GENERATION_S, site.sweep.patience.silence_s)
    while result is None and time.monotonic() - sent < bound_s:
        followed = follower.poll(job=name)
        follower.raise_if_dead(followed.poll, "wait_ready")
        job = followed.poll.job or {}
        result = job.get("result")
        if result is None and not job.get("alive", True):
            result = {"completed": 0}
    at, seconds = time.monotonic() - began, time.monotonic() - sent
    if not result or not result.get("completed"):
        text = json.dumps({"error": "no answer to one request"})
        return Answer(at, path, None, text, seconds)
    row = json.loads(site.agent.get(f"{site.folder}/jobs/{name}/samples.jsonl").splitlines()[0])
    said = {"text": row.get("text_tail", ""), "meta_info": row.get("meta") or {}}
    return Answer(at, path, row.get("status"), json.dumps(said), seconds)


def drive_request(
    site: Site,
    handle: Handle,
    requests: list[dict[str, Any]],
    concurrency: int,
    *,
    timeout_s: float = _GENERATION_S,
    deadline_s: float = _GENERATION_S,
) -> dict[str, Any]:
    """What the agent's `drive` job is asked to do."""
    return {
        "base_url": f"http://127.0.0.1:{handle.port}",
        "path": generation_path(site.engine.kind),
        "concurrency": concurrency,
        "timeout_s": timeout_s,
        "deadline_s": deadline_s,
        "headers_path": handle.headers_path,
        "requests": requests,
        "abort_after_failures": None,
    }


def http(
    site: Site, handle: Handle, method: str, path: str, body: str | None = None
) -> dict[str, Any]:
    """One short HTTP request to the engine, made on the host."""
    return site.agent.call(
        "http",
        port=handle.port,
        method=method,
        path=path,
        body=body,
        headers_path=handle.headers_path,
        timeout_s=2.0,
    )


def verify(site: Site, follower: Follower, handle: Handle) -> tuple[ServerInfo, dict[str, str]]:
    """Reads back what the server really uses; refuses a baseline that speculates and the reverse.

    Raises:
        StageFailedError: ``speculation_not_active``, ``wrong_model_served``.
    """
    info, raw = read_settings(site, handle, patience_s=_SETTINGS_S)
    if info.error is not None:
        raise failed("verify", "not_generating", f"/server_info could not be read: {info.error}")
    wanted = not isinstance(site.sweep.arms[site.trial.arm].speculation, Off)
    if info.spec_active is not None and info.spec_active != wanted:
        told = "does not speculate although asked to" if wanted else "speculates unasked"
        raise failed("verify", "speculation_not_active", f"the server {told}")
    follower.poll(timeout_s=0.0)
    asked = arm_flags(site.sweep, site.trial.arm, site.trial.levels)
    return info, effective(site.engine.kind, raw, asked, info)


def read_settings(site: Site, handle: Handle, *, patience_s: float = 0.0) -> tuple[ServerInfo, str]:
    """The server's account of itself, and the text of it; ``error`` where it gives none.

    vLLM's first answer may take longer than a short request: it runs a handful of programs for it
    (vllm.collect_env), and keeps the result; so it is asked again while there is patience.
    """
    deadline = time.monotonic() + patience_s
    while True:
        info, raw = ServerInfo(error="not_found"), ""
        for path in settings_paths(site.engine.kind):
            try:
                answer = http(site, handle, "GET", path)
            except AgentRefusal as refusal:
                if refusal.error != "timeout":
                    raise
                info = ServerInfo(error="timeout")
                break
            raw = answer["body"]
            info = _read_info(site.engine.kind, raw, answer["status"])
            if info.error is None:
                return info, raw
        if info.error != "timeout" or time.monotonic() > deadline:
            return info, raw


def _read_info(engine: EngineKind, raw: str, status: int) -> ServerInfo:
    match engine:
        case "sglang":
            return read_server_info(raw, status=status)
        case "vllm":
            return read_vllm_info(raw, status=status)
        case _:
            assert_never(engine)


def effective(
    engine: EngineKind, raw: str, asked: dict[str, FlagValue], info: ServerInfo
) -> dict[str, str]:
    """The settings in use: every asked flag as the server reports it, and what it decided."""
    match engine:
        case "sglang":
            said = effective_settings(raw)
            found = {f: str(said[setting_name(f)]) for f in asked if setting_name(f) in said}
            decided = {
                "max-running-requests": info.max_running_requests,
                "max-total-num-tokens": info.max_total_num_tokens,
                "cuda-graph-max-bs": info.cuda_graph_max_bs,
                "speculative-num-steps": info.num_steps,
                "speculative-eagle-topk": info.topk,
                "speculative-num-draft-tokens": info.num_draft_tokens,
            }
        case "vllm":
            found = effective_flags(asked, raw)
            decided = {
                "max-num-seqs": info.max_running_requests_per_dp,
                "num-speculative-tokens": info.num_steps,
                "kv-cache-tokens": info.max_total_num_tokens,
            }
        case _:
            assert_never(engine)
    return found | {flag: str(value) for flag, value in decided.items() if value is not None}
