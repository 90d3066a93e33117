"""The lines of an sglang start log that mean something: what each moves or tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tasks.start_state import FLOAT, INTEGER, TOKENS, Act, Event, StartState, event

if TYPE_CHECKING:
    from tasks.log_lines import LogLine

_MAX_MODULES = 64


def _value(text: str, name: str) -> str | None:
    """Read one plain value of `ServerArgs(name='…', …)` or `{'name': '…', …}`; None for None."""
    found = re.search(rf"\b{name}'?(?:=|: ?)(?:'([^']*)'|\"([^\"]*)\"|([^,(){{}}\s]+))", text)
    if found is None:
        return None
    value = next(group for group in found.groups() if group is not None)
    return None if value == "None" else value


def _sglang_arguments(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    text = line.text
    state.framework = "sglang"
    state.draft_path_known = "speculative_draft_model_path" in text
    state.speculative = _value(text, "speculative_algorithm") is not None
    for fact, name in (
        ("model_path", "model_path"),
        ("draft_path", "speculative_draft_model_path"),
    ):
        path = _value(text, name)
        if path is not None:
            state.first(fact, path)
    port = _value(text, "port")
    if port is not None and re.fullmatch(INTEGER, port):
        state.first("port", int(port))
    # The launcher's line: no step of a rank.
    if state.leads == 0:
        state.enter("starting", line.stamp)


def _distributed_begin(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    # The drafter's worker connects again, with its ranks connected already.
    if state.rank(line.source).loads_ended == 0:
        state.move("distributed_init", line)


def _distributed_end(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    state.most("distributed_init_s", float(found[1]))


def _nccl(state: StartState, found: re.Match[str], line: LogLine) -> None:
    state.first("nccl_version", found[1])
    _distributed_begin(state, found, line)


def _load_begin(state: StartState, found: re.Match[str], line: LogLine) -> None:
    steps = state.rank(line.source)
    steps.loads_begun += 1
    if steps.loads_begun == 1:
        free = float(found[1])
        known = state.facts.get("free_before_load_gb")
        if not isinstance(known, float) or free < known:
            state.facts["free_before_load_gb"] = free
    state.move("target_weights" if steps.loads_begun == 1 else "draft_load", line)


def _load_end(state: StartState, found: re.Match[str], line: LogLine) -> None:
    steps = state.rank(line.source)
    steps.loads_ended += 1
    steps.loads_begun = max(steps.loads_begun, steps.loads_ended)
    drafter = steps.loads_ended > 1
    if found["elapsed"] is not None:
        state.most("draft_load_s" if drafter else "load_s", float(found["elapsed"]))
    if found["type"] is not None:
        state.first("draft_class" if drafter else "target_class", found["type"])
    state.move("after_draft_load" if drafter else "after_target_weights", line)


def _pool(state: StartState, found: re.Match[str], line: LogLine) -> None:
    steps = state.rank(line.source)
    steps.pools += 1
    state.first("kv_cache_tokens", int(found[1].replace(",", "")))
    drafter = state.speculative and steps.pools > 1
    state.move("draft_kv_cache" if drafter else "kv_cache", line)


def _pool_begin(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    drafter = state.speculative and state.rank(line.source).pools > 0
    state.move("draft_kv_cache" if drafter else "kv_cache", line)


def _capture_begin(state: StartState, found: re.Match[str], line: LogLine) -> None:
    state.move("draft_graph_capture" if "draft" in found[1] else "graph_capture", line)


def _capture_end(state: StartState, found: re.Match[str], line: LogLine) -> None:
    kind = found[1].lower()
    elapsed = re.search(r"elapsed[=:] ?" + FLOAT + r" s", line.text)
    if elapsed is not None:
        state.captures[kind] = max(state.captures.get(kind, 0.0), float(elapsed[1]))
    sizes = re.search(r"\bbs=\[([\d, ]+)\]", line.text)
    if sizes is not None and "draft" not in kind and "prefill" not in kind:
        _graph_sizes(state, sizes, line)


def _graph_sizes(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    state.first("cuda_graph_bs", tuple(int(size) for size in re.findall(r"\d{1,6}", found[1])))


def _limits(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    for fact, name in (
        ("max_total_num_tokens", "max_total_num_tokens"),
        ("chunked_prefill_size", "chunked_prefill_size"),
        ("max_running_requests", "max_running_requests"),
        ("context_len", "context_len"),
        ("available_gpu_mem_gb", "available_(?:gpu|cpu)_mem"),
    ):
        value = _value(line.text, name)
        if value is not None and re.fullmatch(r"-?\d{1,15}(?:\.\d{1,9})?", value):
            state.first(fact, float(value) if "mem" in name else int(float(value)))
    state.move("http_start", line)


def _http(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    state.enter("http_start", line.stamp)


def _listening(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    state.http_at = line.stamp
    state.enter("warmup", line.stamp)


def _compile(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    state.enter("kernel_compile", line.stamp)


def _stopping(state: StartState, _found: re.Match[str], _line: LogLine) -> None:
    if state.stage == "serving":
        state.stage = "stopping"


def _unbalanced(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    least, here = float(found[1]), float(found[2])
    state.warn(f"gpus_unbalanced: least free {least:.1f} GB, here {here:.1f} GB")


def _unbalanced_plain(state: StartState, _found: re.Match[str], line: LogLine) -> None:
    if "local_gpu_memory=" not in line.text:
        state.warn("gpus_unbalanced")


def _broken_module(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    if found[1] not in state.broken_modules and len(state.broken_modules) < _MAX_MODULES:
        state.broken_modules.append(found[1])


def _reset_to(state: StartState, found: re.Match[str], _line: LogLine) -> None:
    state.first("max_running_requests_reset_to", int(found[1]))


def _own_all_reduce_off(state: StartState, _found: re.Match[str], _line: LogLine) -> None:
    state.first("custom_all_reduce_disabled", True)


def _worker(version: str) -> Act:
    def act(state: StartState, _found: re.Match[str], _line: LogLine) -> None:
        state.first("spec_worker", version)

    return act


_GB = FLOAT + r" GB"
_UNBALANCED = "The memory capacity is unbalanced"

SGLANG_EVENTS: tuple[Event, ...] = (
    event("server_args=", r"(?:ServerArgs\(|\{)", _sglang_arguments),
    event("Max running requests is reset to ", INTEGER, _reset_to),
    event("Spec v2 is enabled", "", _worker("v2")),
    event("Spec v1 is used", "", _worker("v1")),
    event("Overlap scheduler is disabled when spec v2 is off", "", _worker("v1")),
    event("Non-overlap (synchronous) spec v2 is used", "", _worker("v2")),
    event("Init torch distributed begin", "", _distributed_begin),
    event("Init torch distributed ends", r".*?elapsed=" + FLOAT + r" s", _distributed_end),
    event("sglang is using nccl==", r"([\d.]{1,20})", _nccl),
    event("Setup Custom allreduce failed", "", _own_all_reduce_off),
    event("Custom", r"\s?[Aa]ll[Rr]educe\w* is disabled", _own_all_reduce_off),
    event(
        _UNBALANCED,
        r".*?(?:min_per_gpu|pre_model_load)_memory=" + FLOAT + r"\d*, local_gpu_memory=" + FLOAT,
        _unbalanced,
    ),
    event(_UNBALANCED, "", _unbalanced_plain),
    event("Ignore import error when loading ", r"[\w.]*?\bmodels\.(\w+)", _broken_module),
    event("Load weight begin", rf".*?avail mem={_GB}", _load_begin),
    event(
        "Load weight end",
        r"(?:.*?elapsed=(?P<elapsed>\d{1,9}(?:\.\d{1,9})?) s)?(?:.*?type=(?P<type>\w+))?",
        _load_end,
    ),
    event(
        "",
        r"(?:[\w ()-]{1,40} )?KV Cache (?:is allocated|VA upper bound)\..*?#tokens: " + TOKENS,
        _pool,
    ),
    event("Using KV cache dtype", "", _pool_begin),
    event("Post-capture KV sizing", r".*?#tokens: " + TOKENS, _pool),
    event("Capture ", r"([\w /]*?(?:[Cc][Uu][Dd][Aa]|[Cc][Pp][Uu]) graph) begin", _capture_begin),
    event("Capture ", r"([\w /]*?(?:[Cc][Uu][Dd][Aa]|[Cc][Pp][Uu]) graph) end", _capture_end),
    event("Capture cuda graph bs ", r"\[([\d, ]+)\]", _graph_sizes),
    event("Entering DeepGEMM JIT Pre-Compile", "", _compile),
    event("max_total_num_tokens=", "", _limits),
    event("Started server process", "", _http),
    event("Uvicorn running on", "", _listening),
    event("SIGTERM received", "", _stopping),
    event("Gracefully exiting", "", _stopping),
)
