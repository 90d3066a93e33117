"""Says from what is known of a starting server whether it is ready, and if not, in which way."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tasks.foreign_json import NotJsonError, mapping, read_json, rows, words
from tasks.generation import Generated, read_generation

State = Literal[
    "starting",
    "ready",
    "busy",
    "busy_then_ok",
    "not_generating",
    "garbage_output",
    "wrong_model",
    "scheduler_dead",
    "dead",
    "timeout",
]
#: States in which requests may be sent.
READY_STATES: tuple[State, ...] = ("ready", "busy", "busy_then_ok")
#: States that waiting does not mend.
FINAL_STATES: tuple[State, ...] = (
    "dead",
    "scheduler_dead",
    "wrong_model",
    "garbage_output",
    "timeout",
)

GENERATION_PATHS = ("/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses")
HEALTH_PATHS = ("/health", "/health_generate", "/ready", "/ping")
MODEL_PATHS = ("/model_info", "/get_model_info", "/v1/models")
_TIMES = re.compile(r"^(.*?)\s+[x\u00d7*]\s*(\d+)$")


class Answer(NamedTuple):
    """One HTTP exchange with the server. ``status`` None: no answer came; ``body`` says why."""

    t_s: float
    path: str
    status: int | None
    body: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Facts:
    """Everything that is known when the question is asked. None: not looked at."""

    alive: bool | None = None
    """Whether the process that we launched lives."""
    log_ready: bool | None = None
    """Whether the ready line stands in *our* log. It alone proves nothing: a server whose port
    is taken prints it too, after warming up on the other server."""
    answers: tuple[Answer, ...] = ()
    """HTTP exchanges so far, oldest first."""
    progress: bool | None = None
    """Whether the log has moved while health checks failed."""
    running: tuple[str, ...] | None = None
    """Titles of our processes that live."""
    expected: tuple[str, ...] | None = None
    """Titles that must live, such as ``sglang::scheduler x8``."""
    model: str | None = None
    """Path or name of the model that was launched."""
    silent_s: float | None = None
    """Seconds since the log, the processes or the port last showed progress."""
    silent_limit_s: float | None = None
    """Silence after which waiting ends."""
    waited_s: float | None = None
    """Seconds since the launch."""
    wait_limit_s: float | None = None
    """Seconds after which waiting ends."""


class Readiness(NamedTuple):
    """The state, and why in words."""

    state: State
    reason: str

    @property
    def ready(self) -> bool:
        """Whether requests may be sent."""
        return self.state in READY_STATES

    @property
    def final(self) -> bool:
        """Whether waiting longer is of no use."""
        return self.state in FINAL_STATES


def judge(facts: Facts) -> Readiness:
    """The state of a server, by the strongest evidence first.

    Only a generated token counts as ready: ``/health`` answers 200 while nothing is generated
    (sglang#4191, #35822, vllm#39863) and while schedulers are gone (sglang#6624), and 503 while a
    long prefill keeps a sound server busy (sglang#22511).
    """
    verdict = _fatal(facts)
    if verdict is None:
        verdict = _by_generation(facts)
    if verdict.ready or verdict.final:
        return verdict
    if _over(facts.waited_s, facts.wait_limit_s):
        return Readiness(
            "timeout", f"not ready {facts.waited_s:g} s after launch; {verdict.reason}"
        )
    if _over(facts.silent_s, facts.silent_limit_s):
        return Readiness("timeout", f"no progress for {facts.silent_s:g} s; {verdict.reason}")
    return verdict


def missing_processes(expected: tuple[str, ...], running: tuple[str, ...]) -> tuple[str, ...]:
    """The expected titles of which fewer run than should: ``sglang::scheduler x8`` wants eight."""
    missing = []
    for title in expected:
        found = _TIMES.match(title.strip())
        name, wanted = (found[1], int(found[2])) if found else (title.strip(), 1)
        have = Counter(_is_titled(process, name) for process in running)[True]
        if have < wanted:
            missing.append(f"{name} ({have} of {wanted})")
    return tuple(missing)


def _is_titled(process: str, name: str) -> bool:
    found = _TIMES.match(process.strip())
    title = found[1] if found else process.strip()
    # The kernel cuts a command name to 15 characters; ranks follow as _TP0, _DP0_TP0.
    return name in title or (len(title) == 15 and name.startswith(title))


def _expand(running: tuple[str, ...]) -> tuple[str, ...]:
    expanded: list[str] = []
    for title in running:
        found = _TIMES.match(title.strip())
        expanded += [found[1]] * min(int(found[2]), 10_000) if found else [title]
    return tuple(expanded)


def _fatal(facts: Facts) -> Readiness | None:
    if facts.alive is False or facts.running == ():
        other = any(a.status is not None for a in facts.answers[-1:])
        also = "; what answers on the port is another process" if other else ""
        return Readiness("dead", f"the process that was launched is gone{also}")
    if facts.expected and facts.running is not None:
        missing = missing_processes(facts.expected, _expand(facts.running))
        if missing:
            return Readiness("scheduler_dead", f"processes missing: {', '.join(missing)}")
    served = served_model(facts.answers)
    if facts.model is not None and served and not any(_same_model(s, facts.model) for s in served):
        return Readiness("wrong_model", f"the port serves {served[0]}, launched was {facts.model}")
    return None


def served_model(answers: tuple[Answer, ...]) -> tuple[str, ...]:
    """The names under which the last answer about the model knows it; empty if none came."""
    for answer in reversed(answers):
        if answer.status != 200 or _path(answer) not in MODEL_PATHS:
            continue
        try:
            body = mapping(read_json(answer.body))
        except NotJsonError:
            continue
        listed = next(iter(rows(body.get("data"))), {})
        names = [body.get("model_path"), body.get("served_model_name")]
        names += [listed.get("root"), listed.get("id")]
        known = tuple(name for name in map(words, names) if name)
        if known:
            return known
    return ()


def _same_model(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


def _by_generation(facts: Facts) -> Readiness:
    attempts = [a for a in facts.answers if _path(a) in GENERATION_PATHS]
    if not attempts:
        return _without_generation(facts)
    last = attempts[-1]
    if last.status is None or not 200 <= last.status < 300:
        return _failed_generation(facts, attempts)
    made = read_generation(last.body)
    if made.verdict == "garbage":
        return Readiness("garbage_output", f"tokens flow but are no text: {made.why}")
    if made.verdict != "tokens":
        return Readiness("not_generating", made.why or "no token was generated")
    return _after_generation(facts, last, made)


def _without_generation(facts: Facts) -> Readiness:
    if facts.log_ready:
        return Readiness("starting", "the log says ready; no token has been generated yet")
    if any(a.status == 200 for a in facts.answers):
        return Readiness("starting", "the port answers; no token has been generated yet")
    return Readiness("starting", "loading: nothing answers yet")


def _failed_generation(facts: Facts, attempts: list[Answer]) -> Readiness:
    last = attempts[-1]
    what = f"status {last.status}" if last.status is not None else last.body[:80] or "no answer"
    why = f"{last.path} gave no token: {what}"
    worked = any(_made_tokens(a) for a in attempts)
    if worked and facts.progress:
        return Readiness("busy", f"{why}; the log shows progress")
    heard = facts.log_ready or any(a.status == 200 for a in facts.answers)
    if worked or heard:
        return Readiness("not_generating", why)
    return Readiness("starting", why)


def _made_tokens(answer: Answer) -> bool:
    return answer.status == 200 and read_generation(answer.body).verdict == "tokens"


def _after_generation(facts: Facts, last: Answer, made: Generated) -> Readiness:
    later = [a for a in facts.answers if a.t_s >= last.t_s and _path(a) in HEALTH_PATHS]
    tokens = f"{made.tokens} tokens" if made.tokens is not None else "text"
    if all(a.status == 200 for a in later):
        return Readiness("ready", f"{last.path} generated {tokens}")
    failed = sum(a.status != 200 for a in later)
    if later[-1].status == 200:
        return Readiness(
            "busy_then_ok", f"{failed} health checks failed while busy, then one passed"
        )
    if facts.progress:
        return Readiness("busy", f"{failed} health checks failed while the log shows progress")
    return Readiness("not_generating", f"{failed} health checks failed and the log stands still")


def _path(answer: Answer) -> str:
    path = re.sub(r"^https?://[^/]*", "", answer.path).split("?")[0]
    return path.rstrip("/") or "/"


def _over(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit
