"""The lines of a vLLM start log that mean something (0.8 to 0.33): what each moves or tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.start_state import FLOAT, TOKENS, Act, Event, StartState, event

if TYPE_CHECKING:
    import re

    from tasks.log_lines import LogLine


def _stage(name: str) -> Act:
    def act(state: StartState, _found: re.Match[str], line: LogLine) -> None:
        state.framework = state.framework or "vllm"
        state.move(name, line)

    return act


def _version(state: StartState, found: re.Match[str], line: LogLine) -> None:
    state.framework = "vllm"
    state.first("version", found[1])
    state.move("starting", line)


def _loaded(state: StartState, found: re.Match[str], line: LogLine) -> None:
    # vLLM counts target and drafter together here; the parts come from "Loading weights took".
    if state.stage != "draft_load":
        state.most("load_s", float(found[1]))
    state.move("after_target_weights", line)


def _weights(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    drafter = state.stage == "draft_load"
    state.most("draft_load_s" if drafter else "load_s", float(found[1]))


def _pool(state: StartState, found: re.Match[str], line: LogLine) -> None:
    state.framework = state.framework or "vllm"
    state.first("kv_cache_tokens", int(found[1].replace(",", "")))
    state.move("kv_cache", line)


def _captured(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    state.captures["cuda graph"] = float(found[1])


def _context(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    state.first("context_len", int(found[1].replace(",", "")))


def _port(state: StartState, found: re.Match[str], line: LogLine) -> None:
    state.first("port", int(found[1]))
    _stage("http_start")(state, found, line)


def _nccl(state: StartState, found: re.Match[str], line: LogLine) -> None:
    state.first("nccl_version", found[1])
    _stage("distributed_init")(state, found, line)


VLLM_EVENTS: tuple[Event, ...] = (
    event("Starting vLLM server on ", r"\S*:(\d{1,5})$", _port),
    event("vLLM API server version ", r"([\w.+-]+)", _version),
    event("vLLM server version ", r"([\w.+-]+), serving", _version),
    event("Initializing a V", r"1 LLM engine \(v([\w.+-]+)\)", _version),
    event("Initializing a V", "", _stage("starting")),
    event("vLLM is using nccl==", r"([\d.]{1,20})", _nccl),
    event("world_size=", "", _stage("distributed_init")),
    event("Starting to load model", "", _stage("target_weights")),
    event("Loading drafter model", "", _stage("draft_load")),
    event("Loading weights took ", FLOAT + r" seconds", _weights),
    event("Model loading took ", r".*? and " + FLOAT + r" seconds", _loaded),
    event("Start compiling function", "", _stage("kernel_compile")),
    event("Dynamo bytecode transform time", "", _stage("kernel_compile")),
    event("Available KV cache memory", "", _stage("kv_cache")),
    event("GPU KV cache size: ", TOKENS + r" tokens", _pool),
    event("Maximum concurrency for ", TOKENS + r" tokens", _context),
    event("Graph capturing finished in ", FLOAT + r" secs", _captured),
    event("init engine (profile", "", _stage("graph_capture")),
)
