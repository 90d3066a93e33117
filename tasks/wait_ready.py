"""The stages from launch to a server that may be measured: wait_ready and verify."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from configs.rules import arm_flags
from configs.speculation import Off
from configs.values import Value
from infra.errors import AgentRefusal
from tasks.asking import generation_path, model_path, question, settings_paths
from tasks.failures import failure_of
from tasks.readiness import Answer, Facts, judge
from tasks.server_info import ServerInfo
from tasks.settings_in_use import effective, read_info
from tasks.venue import failed, failed_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from configs.releases import EngineKind
    from tasks.follow import Follower
    from tasks.launch import Handle
    from tasks.venue import Site

_PROMPT = "The capital of France is"
_TOKENS = 7
Question = tuple[str, str, str | None]
"""Method, path and body of a short HTTP request to the engine."""
_GENERATION_S = 120.0
_SETTINGS_S = 60.0
_CLASS = {"wrong_model": "wrong_model_served", "timeout": "ready_timeout", "dead": "engine_dead"}


class Ready(Value):
    """A server that answered."""

    started_s: float
    """Seconds from launch to the first real answer."""
    notes: tuple[str, ...]
    server_info: str | None = None
    """What /server_info said right after that; None where it gave no answer."""


class _Asked(NamedTuple):
    """What a server that said it was ready answered."""

    answers: list[Answer]
    server_info: str | None = None


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
    asked, vain_since, asking = 0.0, 0.0, _Asked([])
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
            asking = _ask(site, follower, handle, began)
            answers += asking.answers
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
            return Ready(
                started_s=time.monotonic() - began, notes=notes, server_info=asking.server_info
            )
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


def _ask(site: Site, follower: Follower, handle: Handle, began: float) -> _Asked:
    """Which model it serves, one real generation, and what it says of itself: one round trip.

    A generation that takes longer than a short request may is driven as a job.
    """
    questions = _questions(site.engine.kind)
    said = http_calls(site, handle, questions)
    answers = []
    for (_, path, _), one in zip(questions[:2], said, strict=False):
        at = time.monotonic() - began
        if one["error"] is None:
            answers.append(Answer(at, path, one["status"], one["body"], one["seconds"]))
        elif path == generation_path(site.engine.kind) and one["error"] == "timeout":
            answers.append(_generate_slowly(site, follower, handle, began))
        else:
            answers.append(Answer(at, path, None, one["message"]))
    told = said[2] if len(said) > 2 else {}
    return _Asked(answers, told.get("body") if told.get("status") == 200 else None)


def _questions(engine: EngineKind) -> tuple[Question, ...]:
    path, body = question(engine, _PROMPT, _TOKENS, stream=False)
    return (
        ("GET", model_path(engine), None),
        ("POST", path, json.dumps(body)),
        ("GET", settings_paths(engine)[0], None),
    )


def _generate_slowly(site: Site, follower: Follower, handle: Handle, began: float) -> Answer:
    """The same through the probes' client, detached; the first generation may compile kernels."""
    name = "ready"
    path, payload = question(site.engine.kind, _PROMPT, _TOKENS, stream=True)
    asked = drive_request(site, handle, [{"id": "ready", "kind": "ready", "payload": payload}], 1)
    start: dict[str, Any] | None = site.agent.prepare(
        site.folder, name, "drive", asked, python=site.python
    )
    sent = time.monotonic()
    result: dict[str, Any] | None = None
    bound_s = min(_GENERATION_S, site.sweep.patience.silence_s)
    while result is None and time.monotonic() - sent < bound_s:
        followed = follower.poll(job=name, start=start)
        start = None
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


def http_calls(site: Site, handle: Handle, requests: Sequence[Question]) -> list[dict[str, Any]]:
    """Several of them (method, path, body) in order, up to the first without a 200.

    Returns:
        For each ``error`` (None, or the refusal's class with its ``message``), ``status``,
        ``body``, ``seconds``.
    """
    if not requests:
        return []
    asked = [{"method": method, "path": path, "body": body} for method, path, body in requests]
    answer = site.agent.call(
        "http-calls",
        port=handle.port,
        requests=asked,
        headers_path=handle.headers_path,
        timeout_s=2.0,
    )
    return list(answer["answers"])


def verify(site: Site, handle: Handle, ready: Ready) -> tuple[ServerInfo, dict[str, str]]:
    """Reads back what the server really uses; refuses a baseline that speculates and the reverse.

    Raises:
        StageFailedError: ``speculation_not_active``, ``wrong_model_served``.
    """
    engine, raw = site.engine.kind, ready.server_info or ""
    info = read_info(engine, raw)
    if info.error is not None:
        info, raw = read_settings(site, handle, patience_s=_SETTINGS_S)
    if info.error is not None:
        raise failed("verify", "not_generating", f"/server_info could not be read: {info.error}")
    wanted = not isinstance(site.sweep.arms[site.trial.arm].speculation, Off)
    if info.spec_active is not None and info.spec_active != wanted:
        told = "does not speculate although asked to" if wanted else "speculates unasked"
        raise failed("verify", "speculation_not_active", f"the server {told}")
    asked = arm_flags(site.sweep, site.trial.arm, site.trial.levels)
    return info, effective(engine, raw, asked, info)


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
            info = read_info(site.engine.kind, raw, answer["status"])
            if info.error is None:
                return info, raw
        if info.error != "timeout" or time.monotonic() > deadline:
            return info, raw
