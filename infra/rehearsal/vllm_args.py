"""The command line of the pretend vLLM 0.33: every option of that release, and what it makes of it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from configs.releases import has, known_flags
from infra.rehearsal.flags import CONTEXT_LEN

VERSION = "0.33.0"
METHODS = {"eagle3": "EAGLE3", "eagle": "EAGLE", "mtp": "NEXTN", "ngram": "NGRAM"}
METHODS["draft_model"] = "STANDALONE"

_WHOLE = {
    "port": 8000,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "nnodes": 1,
    "node_rank": 0,
    "master_port": 29501,
    "max_num_seqs": None,
    "max_num_batched_tokens": None,
    "max_model_len": None,
    "max_cudagraph_capture_size": None,
    "stream_interval": 1,
    "block_size": 16,
    "seed": 0,
    "shutdown_timeout": 0,
}
_NUMBERS = {"gpu_memory_utilization": 0.9}
_MOST_GRAPH = 512
_DEFAULT_SEQS = 1024
"""0.33 on a card of 80 GB and more, serving (engine/arg_utils.py)."""


def parser() -> argparse.ArgumentParser:
    """``vllm serve MODEL`` and its options, abbreviations included, as argparse has them."""
    made = argparse.ArgumentParser(prog="vllm")
    commands = made.add_subparsers(required=True, dest="command")
    serve = commands.add_parser("serve", prog="vllm serve")
    serve.add_argument("model_tag", nargs="?")
    together: dict[str, list[str]] = {}
    for name, known in known_flags("vllm").items():
        if has(known, VERSION):
            together.setdefault(known.canonical, []).append(name)
    for canonical, names in together.items():
        dest = canonical.replace("-", "_")
        flags = [f"--{name}" for name in sorted(names, key=lambda n: n != canonical)]
        match known_flags("vllm")[canonical].takes:
            case "switch":
                action = argparse.BooleanOptionalAction
                serve.add_argument(*flags, dest=dest, action=action, default=None)
            case "flag":
                serve.add_argument(*flags, dest=dest, action="store_true")
            case "value" if dest in _WHOLE:
                serve.add_argument(*flags, dest=dest, type=int, default=_WHOLE[dest])
            case "value" if dest in _NUMBERS:
                serve.add_argument(*flags, dest=dest, type=float, default=_NUMBERS[dest])
            case "value":
                serve.add_argument(*flags, dest=dest)
    return made


class WrongSpeculationError(Exception):
    """What pydantic says of a ``--speculative-config``."""


def settle(given: argparse.Namespace) -> dict[str, Any]:
    """The effective settings: vLLM's own, and beside them what the pretend engine runs by.

    Raises:
        WrongSpeculationError: a speculation that vLLM refuses before anything is loaded.
    """
    args = dict(vars(given))
    args["model"] = args.pop("model_tag") or args["model"]
    args["given"] = {name: value for name, value in args.items() if value not in (None, False)}
    args["max_num_seqs"] = args["max_num_seqs"] or _DEFAULT_SEQS
    speculation = json.loads(args["speculative_config"] or "null")
    tokens = _tokens(speculation)
    graph = min(_MOST_GRAPH, 2 * args["max_num_seqs"] * (tokens + 1))
    args["max_cudagraph_capture_size"] = args["max_cudagraph_capture_size"] or graph
    eager = bool(args["enforce_eager"])
    return args | {
        "speculation": speculation,
        # Under the names that the pretend engine's own parts go by (they began with SGLang).
        "model_path": args["model"],
        "tp_size": args["tensor_parallel_size"],
        "dist_init_addr": f"{args['master_addr']}:{args['master_port']}",
        "speculative_algorithm": METHODS[speculation["method"]] if speculation else None,
        "speculative_draft_model_path": speculation.get("model") if speculation else None,
        "speculative_num_steps": tokens,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": tokens + 1 if speculation else None,
        "max_running_requests": args["max_num_seqs"],
        "context_length": args["max_model_len"] or CONTEXT_LEN,
        "disable_cuda_graph": eager,
        "disable_radix_cache": args["enable_prefix_caching"] is False,
        "decode_log_interval": 1 << 60,
        "log_level": "info",
    }


def _tokens(speculation: dict[str, Any] | None) -> int:
    if speculation is None:
        return 0
    if speculation.get("method") not in METHODS:
        raise WrongSpeculationError(f"Unsupported speculative method: {speculation.get('method')}")
    tokens = speculation.get("num_speculative_tokens")
    if tokens is None and speculation["method"] != "mtp":
        raise WrongSpeculationError(
            "num_speculative_tokens must be provided with speculative model unless the draft "
            "model config contains an n_predict parameter."
        )
    return int(tokens or 1)
