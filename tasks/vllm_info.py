"""What a running vLLM says of its settings: ``/server_info?config_format=json`` of 0.18 to 0.33.

The answer is there in development mode alone. ``vllm_config`` holds the whole configuration by
part (``model_config``, ``parallel_config``, ``scheduler_config``, ...; ``speculative_config`` is
null without speculation), each part's fields named as its flags are, with underscores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tasks.foreign_json import NotJsonError, count, mapping, read_json, words
from tasks.server_info import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.effective import Setting

_FALLBACK: Final = "read the log lines: this release tells its settings there alone"
# A field that is called otherwise than its flag.
_FIELD: Final = {"kv_cache_dtype": "cache_dtype"}
# Parts whose fields are those of another model, or of nothing that a flag sets.
_NOT_THE_TARGETS: Final = frozenset({"speculative_config"})
_WORDS_FOR_AUTO: Final = frozenset({"auto", "None", "null", "-1"})


def read_vllm_info(text: str, status: int | None = 200) -> ServerInfo:
    """Read the body of ``/server_info``; what is none becomes ``error``, not an exception.

    Args:
        text: the body.
        status: its HTTP status.
    """
    config = _config(text)
    if config is None:
        error = "not_found" if status == 404 else "not_server_info"
        return ServerInfo(error=error, fallback=_FALLBACK)
    model, parallel = _part(config, "model_config"), _part(config, "parallel_config")
    told = config.get("speculative_config")
    drafts = mapping(told)
    tokens = count(drafts.get("num_speculative_tokens"))
    ranks = count(parallel.get("data_parallel_size")) or 1
    limit = count(_part(config, "scheduler_config").get("max_num_seqs"))
    largest = count(_part(config, "compilation_config").get("max_cudagraph_capture_size"))
    eager = model.get("enforce_eager") is True
    return ServerInfo(
        version=words(config.get("version")),
        layout="data_parallel" if ranks > 1 else "single",
        model_path=words(model.get("model")),
        tp_size=count(parallel.get("tensor_parallel_size")),
        dp_size=ranks,
        spec_active=isinstance(told, dict) if "speculative_config" in config else None,
        algorithm=words(drafts.get("method")),
        draft_path=words(drafts.get("model")),
        num_steps=tokens,
        topk=1 if tokens else None,
        num_draft_tokens=tokens + 1 if tokens else None,
        max_running_requests=limit * ranks if limit is not None else None,
        max_running_requests_per_dp=limit,
        max_total_num_tokens=_pool(_part(config, "cache_config")),
        # Of requests: a graph holds so many tokens, and each request brings its drafts along.
        cuda_graph_max_bs=largest // ((tokens or 0) + 1) if largest and not eager else None,
    )


def vllm_settings(text: str) -> dict[str, Setting]:
    """Every plain setting of the target in a ``/server_info`` answer, by its flag's name.

    Flags of the same name in two parts of the configuration are left out where they differ.
    """
    config = _config(text)
    found: dict[str, Setting] = {}
    unclear: set[str] = set()
    for part, fields in (config or {}).items():
        if part in _NOT_THE_TARGETS or not isinstance(fields, dict):
            continue
        for field, value in fields.items():
            if value is None or not isinstance(value, str | int | float):
                continue
            if field in found and found[field] != value:
                unclear.add(field)
            found[field] = value
    return {name: value for name, value in found.items() if name not in unclear}


def effective_flags(asked: Mapping[str, object], text: str) -> dict[str, str]:
    """Flag -> what is in effect, of every asked flag that the answer tells and that is no choice.

    A flag that leaves the choice to the engine ("auto") is met by whatever it chose.
    """
    said = vllm_settings(text)
    found: dict[str, str] = {}
    for flag, value in asked.items():
        name = flag.replace("-", "_")
        name = _FIELD.get(name, name)
        if name in said and str(value) not in _WORDS_FOR_AUTO:
            found[flag] = str(said[name])
    return found


def _config(text: str) -> dict[str, object] | None:
    try:
        body = read_json(text)
    except NotJsonError:
        return None
    config = body.get("vllm_config") if isinstance(body, dict) else None
    return config if isinstance(config, dict) else None


def _part(config: Mapping[str, object], name: str) -> dict[str, object]:
    return mapping(config.get(name))


def _pool(cache: Mapping[str, object]) -> int | None:
    """Tokens that the KV cache holds."""
    blocks, size = count(cache.get("num_gpu_blocks")), count(cache.get("block_size"))
    return blocks * size if blocks and size else None
