"""What is asked of an engine over HTTP, in each engine's words; nothing is sent here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.probe import Sampling
    from configs.releases import EngineKind

_FLUSHED = 200


class Ask(NamedTuple):
    """One request."""

    path: str
    body: dict[str, Any]


def model_path(engine: EngineKind) -> str:
    """Where an engine says which model it serves."""
    match engine:
        case "sglang":
            return "/model_info"
        case "vllm":
            return "/v1/models"
        case _:
            assert_never(engine)


def generation_path(engine: EngineKind) -> str:
    """Where probes and first questions go."""
    match engine:
        case "sglang":
            return "/generate"
        case "vllm":
            return "/v1/completions"
        case _:
            assert_never(engine)


def question(engine: EngineKind, prompt: str, tokens: int, *, stream: bool) -> Ask:
    """A short question at temperature 0, to see that the engine generates."""
    match engine:
        case "sglang":
            sampling = {"temperature": 0, "max_new_tokens": tokens}
            told = {"text": prompt, "sampling_params": sampling}
            return Ask("/generate", {**told, "stream": True} if stream else told)
        case "vllm":
            plain = {"prompt": prompt, "max_tokens": tokens, **_OFF, "temperature": 0}
            return Ask("/v1/completions", {**plain, **(_STREAM if stream else {})})
        case _:
            assert_never(engine)


# vLLM takes what is not said from the model's generation_config.json (--generation-config auto);
# SGLang's /generate does not. So it is said. -1 means "no limit" in all releases.
_OFF = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_STREAM = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "return_token_ids": True,
}


def sampling_words(engine: EngineKind, sampling: Sampling, max_new_tokens: int) -> dict[str, Any]:
    """What the body of a probe's request says of length and sampling; prompt and stream apart."""
    match engine:
        case "sglang":
            told: dict[str, Any] = {
                "temperature": sampling.temperature,
                "max_new_tokens": max_new_tokens,
            }
            if sampling.top_p < 1:
                told["top_p"] = sampling.top_p
            if sampling.ignore_eos:
                told["ignore_eos"] = True
            return {"sampling_params": told}
        case "vllm":
            return {
                "max_tokens": max_new_tokens,
                **_OFF,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "ignore_eos": sampling.ignore_eos,
            }
        case _:
            assert_never(engine)


def request(
    engine: EngineKind, prompt: str | Sequence[int], sampling: Sampling, max_new_tokens: int
) -> dict[str, Any]:
    """The body of one request of a probe; the same sampling whatever the engine."""
    told = sampling_words(engine, sampling, max_new_tokens)
    match engine:
        case "sglang":
            given = {"text": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
            return {**given, **told, "stream": True}
        case "vllm":
            return {
                "prompt": prompt if isinstance(prompt, str) else list(prompt),
                **told,
                **_STREAM,
            }
        case _:
            assert_never(engine)


def flush_path(engine: EngineKind) -> str:
    """Where an engine empties its prefix cache (POST)."""
    match engine:
        case "sglang":
            return "/flush_cache"
        case "vllm":
            return "/reset_prefix_cache"
        case _:
            assert_never(engine)


def flushed(engine: EngineKind, answer: Mapping[str, Any]) -> bool:
    """Whether the cache was emptied.

    SGLang answers 400 while requests run. vLLM answers 200 in any case; from 0.2x on its body says
    whether it worked, and what says nothing is believed.
    """
    if answer["status"] != _FLUSHED:
        return False
    match engine:
        case "sglang":
            return True
        case "vllm":
            try:
                told = json.loads(answer["body"] or "{}")
            except ValueError:
                return True
            return not isinstance(told, dict) or told.get("success") is not False
        case _:
            assert_never(engine)


def settings_paths(engine: EngineKind) -> tuple[str, ...]:
    """Where an engine says which settings it uses, newest path first."""
    match engine:
        case "sglang":
            return ("/server_info", "/get_server_info")
        case "vllm":
            return ("/server_info?config_format=json", "/server_info")
        case _:
            assert_never(engine)
