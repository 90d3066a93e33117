"""The texts by which tracebacks, headings and last words of a log are told apart."""

from __future__ import annotations

import re

TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'\s*File "(?P<path>[^"]+)", line \d+, in (?P<function>\S+)')
EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*|_[A-Z]\w*|\w*(?:error|exception|timeout|exit))(?::(?: .*)?)?$"
)
CHAIN = ("During handling of the above", "The above exception was the direct cause")
FATAL_HEAD = re.compile(
    r"hit an exception|[Ff]ailed to start|fatal error|Initialization failed|^Process \S+:$"
)
HARMLESS_HEAD = re.compile(
    r"Can not initialize OpenAIServingResponses|Ignore import error|Exception ignored in|can be ignored"
    r"|^Pyspy|resource_tracker"
)
# A prompt may hold any words (request logging, sglang#11144), so such records are never read.
REQUEST_LOG = re.compile(
    r"(?:Receive|Finish): obj=|Received request |Added request |Finished request |\S+ - \""
)
LINE_HEADS = re.compile(
    r"\[Errno|Initialization failed|(?:\w+ )?[Ww]atchdog|Rank \d+ scheduler|Subprocess \w+ \(pid"
    r"|Fatal Python|Segmentation fault|Bus error|Aborted\b|Floating point|!+ ?Seg|SIGTERM received"
    r"|\S{0,200}python[\w.]*: No module"
    r"|Gracefully exiting|Killed|\S+ line \d+:|Out of memory: Killed|Process group watchdog|\["
    r"|[\w .-]{1,80}: error: |\S+:\d+:\d+ \[\d+\] .{0,80}NCCL WARN "
)
THROWN = re.compile(r"\s{1,8}what\(\): +(\S.*)")
STAGE_FRAMES = (
    (re.compile(r"draft_utils\.py in _create"), "draft_backend"),
    (re.compile(r"draft\w*_cuda_graph_runner\.py in (?:__init__|capture)"), "draft_graph_capture"),
    (re.compile(r"cuda_graph_runner\.py in (?:__init__|capture)"), "graph_capture"),
    (re.compile(r"in _(?:execute_server_warmup|wait_and_warmup)"), "warmup"),
    (
        re.compile(r"eagle_worker\w*\.py in [\s\S]*?(?:/loader\.py|in load_(?:model|weights))"),
        "draft_load",
    ),
    (re.compile(r"kv_cache_utils\.py|in (?:init_memory_pool|profile_max_num_token)"), "kv_cache"),
    (re.compile(r"in init_torch_distributed"), "distributed_init"),
    (re.compile(r"(?:server_args|arg_utils)\.py in "), "arguments"),
)
MOVABLE = ("serving", "warmup", "stopping")


def rank_of(source: str) -> str | None:
    """Return the rank that a source names (`TP2`, `EngineCore_DP0`); None for a launcher."""
    return source if any(letter.isdigit() for letter in source) else None


def stage_of(frames: str, stage: str) -> str:
    """Name the stage by the traceback where it says more than the lines before it."""
    if stage in MOVABLE:
        return stage
    for pattern, name in STAGE_FRAMES:
        if pattern.search(frames):
            return name
    return stage
