"""What a running engine says of its settings, in each engine's words, as values of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tasks.effective import effective_settings, setting_name
from tasks.server_info import ServerInfo, read_server_info
from tasks.vllm_info import effective_flags, read_vllm_info

if TYPE_CHECKING:
    from configs.names import FlagValue
    from configs.releases import EngineKind


def read_info(engine: EngineKind, raw: str, status: int | None = 200) -> ServerInfo:
    """The server's account of itself; ``error`` where an answer is none."""
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
