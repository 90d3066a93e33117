"""What a running SGLang server says of itself: the settings in effect, and its speculation.

vLLM has no such endpoint. The answer of ``/server_info`` (``/get_server_info`` before; the old
name is deprecated but still served in 0.5.23) holds every server argument, ``internal_states``
with one entry per data-parallel rank, and ``version``. Through a prefill/decode router the same
lies under ``prefill[i]`` and ``decode[i]`` (sglang#34743).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from configs.values import Value
from tasks.foreign_json import NotJsonError, count, number, read_json, rows, words

if TYPE_CHECKING:
    from collections.abc import Sequence

FALLBACK = "try /get_server_info, then read the log lines"
#: An accept length counts the bonus token, so that it cannot be lower.
LOWEST_ACCEPT_LENGTH = 1.0

Layout = Literal["single", "data_parallel", "prefill_decode", "prefill_only", "decode_only"]
Scope = Literal["since_start_or_flush"]


class ServerInfo(Value):
    """The settings in effect. None: the server does not say."""

    error: str | None = None
    """Why the answer could not be read: ``not_json``, ``not_found`` or ``not_server_info``."""
    fallback: str | None = None
    """What to read instead, in words."""
    version: str | None = None
    """Version of the engine."""
    layout: Layout = "single"
    """How the server is spread."""
    model_path: str | None = None
    """The target model."""
    tp_size: int | None = None
    """Tensor-parallel ranks."""
    dp_size: int | None = None
    """Data-parallel ranks."""
    spec_active: bool | None = None
    """Whether the server speculates."""
    algorithm: str | None = None
    """Speculation method as the server names it."""
    draft_path: str | None = None
    """The drafter."""
    num_steps: int | None = None
    """Draft steps per verify step."""
    topk: int | None = None
    """Branches of the draft tree."""
    num_draft_tokens: int | None = None
    """Tokens that one verify step checks, the bonus included."""
    max_running_requests: int | None = None
    """The limit in effect over all ranks: the ranks' own figures added, else the argument."""
    max_running_requests_asked: int | None = None
    """The server argument; None where the server was left to choose."""
    max_running_requests_per_dp: int | None = None
    """The limit in effect on one data-parallel rank, the lowest one."""
    max_total_num_tokens: int | None = None
    """Tokens that the KV cache holds."""
    cuda_graph_max_bs: int | None = None
    """Largest batch with a captured graph."""
    decode_log_interval: int | None = None
    """Decode steps between two updates of the accept length."""
    accept_len: float | None = None
    """Mean accept length with the bonus token, tokens/step; over ranks unweighted."""
    accept_len_by_rank: tuple[float | None, ...] = ()
    """The same per data-parallel rank."""
    accept_len_scope: Scope | None = None
    """What the mean is over: everything since start or cache flush, warm-up included."""
    last_gen_throughput: float | None = None
    """Generated tokens/s of the last interval, ranks added."""
    retry_after_more_tokens: bool = False
    """Whether more decoding would make the accept length appear."""
    warnings: tuple[str, ...] = ()
    """What to know before using the figures."""


def read_server_info(text: str, status: int | None = 200) -> ServerInfo:
    """Read the body of ``/server_info``; a proxy's error page becomes ``error``, not an exception.

    Args:
        text: the body.
        status: its HTTP status.
    """
    try:
        body = read_json(text)
    except NotJsonError:
        return ServerInfo(error="not_json", fallback=FALLBACK)
    if not isinstance(body, dict):
        return ServerInfo(error="not_server_info", fallback=FALLBACK)
    decode, prefill = rows(body.get("decode") or []), rows(body.get("prefill") or [])
    nodes = decode or prefill or [body]
    states = [state for node in nodes for state in _states(node)]
    if not any(_recognised(node) for node in nodes):
        error = "not_found" if status == 404 or "detail" in body else "not_server_info"
        return ServerInfo(error=error, fallback=FALLBACK)
    return _info(nodes[0], states, _layout(nodes[0], bool(decode or prefill)))


def refusal(info: ServerInfo, *, expected_spec: bool | None) -> str | None:
    """Why this server must not be measured, or None.

    A stale server or a lost flag answers just as well as the right one (sglang#22779).
    """
    if expected_spec is None or info.error is not None:
        return None
    if info.spec_active is None:
        return "the server does not say whether it speculates"
    if expected_spec and not info.spec_active:
        return "speculation was asked for, the answering server has none: stale server or lost flag"
    if not expected_spec and info.spec_active:
        return f"no speculation was asked for, the answering server runs {info.algorithm}"
    return None


def _states(node: dict[str, object]) -> list[dict[str, object]]:
    """One state per data-parallel rank; old versions had one object, or the fields at the top."""
    inner = node.get("internal_states")
    return rows(inner) if inner else [node]


def _recognised(node: dict[str, object]) -> bool:
    known = ("internal_states", "version", "model_path", "tp_size", "max_total_num_tokens")
    return any(name in node for name in known)


def _layout(node: dict[str, object], routed: bool) -> Layout:
    if routed:
        return "prefill_decode"
    mode = node.get("disaggregation_mode")
    if mode == "prefill":
        return "prefill_only"
    if mode == "decode":
        return "decode_only"
    ranks = max(count(node.get("dp_size")) or 1, len(_states(node)))
    return "data_parallel" if ranks > 1 else "single"


def _info(
    node: dict[str, object], states: Sequence[dict[str, object]], layout: Layout
) -> ServerInfo:
    settings = {**(states[0] if states else {}), **node}
    algorithm = _algorithm(settings.get("speculative_algorithm"))
    lengths = tuple(number(state.get("avg_spec_accept_length")) for state in states)
    usable = tuple(x if x is not None and x >= LOWEST_ACCEPT_LENGTH else None for x in lengths)
    seen = [length for length in usable if length is not None]
    names_it = "speculative_algorithm" in settings
    active = algorithm is not None if names_it else (True if seen else None)
    if active is False:
        usable, seen = tuple(None for _ in usable), []
    interval = count(settings.get("decode_log_interval"))
    limits = [count(s.get("effective_max_running_requests_per_dp")) for s in states]
    known = [limit for limit in limits if limit is not None]
    asked = count(settings.get("max_running_requests"))
    speeds = [v for s in states if (v := number(s.get("last_gen_throughput"))) is not None]
    return ServerInfo(
        version=words(settings.get("version")) or words(settings.get("sglang_version")),
        layout=layout,
        model_path=words(settings.get("model_path")),
        tp_size=count(settings.get("tp_size") or settings.get("tensor_parallel_size")),
        dp_size=count(settings.get("dp_size") or settings.get("data_parallel_size")),
        spec_active=active,
        algorithm=algorithm,
        draft_path=words(settings.get("speculative_draft_model_path")),
        num_steps=count(settings.get("speculative_num_steps")),
        topk=count(settings.get("speculative_eagle_topk")),
        num_draft_tokens=count(settings.get("speculative_num_draft_tokens")),
        max_running_requests=_limit_in_effect(known, len(limits), asked),
        max_running_requests_asked=asked,
        max_running_requests_per_dp=min(known) if known else None,
        max_total_num_tokens=count(settings.get("max_total_num_tokens")),
        cuda_graph_max_bs=count(
            settings.get("cuda_graph_max_bs") or settings.get("cuda_graph_max_bs_decode")
        ),
        decode_log_interval=interval,
        accept_len=sum(seen) / len(seen) if seen else None,
        accept_len_by_rank=usable,
        accept_len_scope="since_start_or_flush" if seen else None,
        last_gen_throughput=sum(speeds) if speeds else None,
        retry_after_more_tokens=bool(active) and not seen,
        warnings=(
            *_limit_warnings(_limit_in_effect(known, len(limits), asked), asked),
            *_warnings(active, lengths, usable, interval, settings),
        ),
    )


def _algorithm(value: object) -> str | None:
    name = words(value)
    return None if name is None or name.strip().upper() in ("NONE", "NULL", "OFF") else name


def _limit_in_effect(known: Sequence[int], ranks: int, asked: int | None) -> int | None:
    """The ranks' limits added; a rank that does not say is taken to be like the lowest."""
    if not known:
        return asked
    return sum(known) + min(known) * (ranks - len(known))


def _limit_warnings(effective: int | None, asked: int | None) -> list[str]:
    if effective is None or asked is None or effective >= asked:
        return []
    return [
        f"max_running_requests in effect is {effective}, asked were {asked}: requests will queue"
    ]


def _warnings(
    active: bool | None,
    lengths: Sequence[float | None],
    usable: Sequence[float | None],
    interval: int | None,
    settings: dict[str, object],
) -> list[str]:
    if not active:
        return []
    found = []
    silent = [rank for rank, length in enumerate(usable) if length is None]
    every = f"decode_log_interval ({interval})" if interval else "decode_log_interval"
    if len(silent) == len(usable):
        found.append(
            f"no acceptance yet: fewer than {every} decode steps since start or flush; "
            "decode more tokens and ask again"
        )
    elif silent:
        found.append(
            f"accept length missing on data-parallel rank {', '.join(map(str, silent))}: idle?"
        )
    if len(usable) - len(silent) > 1:
        found.append("accept length is the unweighted mean over data-parallel ranks")
    found += [
        f"rank {rank} reports an accept length of {length:g}, which cannot be: below 1"
        for rank, length in enumerate(lengths)
        if length is not None and length < LOWEST_ACCEPT_LENGTH
    ]
    drafts = count(settings.get("speculative_num_draft_tokens"))
    found += [
        f"rank {rank} reports an accept length of {length:g} with {drafts} draft tokens"
        for rank, length in enumerate(usable)
        if length is not None and drafts and length > drafts
    ]
    return found
