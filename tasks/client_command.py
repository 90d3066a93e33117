"""The command line of an engine's own load generator, so that it repeats a probe of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from configs.releases import client_module, client_takes
from tasks.asking import sampling_words
from tasks.launch import module_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from configs.probe import Stream
    from configs.releases import EngineKind
    from tasks.drive import Text

PROMPTS: Final = "prompts.jsonl"
"""The file with the prompts, in the folder in which the client runs."""
RESULT: Final = "result.jsonl"
"""Where it writes its line."""


class Asked(NamedTuple):
    """One run of a client."""

    engine: EngineKind
    release: str | None
    """Of the installed engine; None: not known."""
    port: int
    model: str
    """The target's folder on the host, a whole path: the client loads the tokenizer from it."""
    served: str
    """The name under which the server serves it."""
    tokenizer: tuple[str, ...]
    """Settings of the tokenizer that the server got, as words of the client's command line."""
    requests: int
    concurrency: int
    seed: int
    tag: str


def tool_of(engine: EngineKind, release: str | None) -> str:
    """What the client is called."""
    match engine:
        case "sglang":
            return client_module(release)
        case "vllm":
            return "vllm bench serve"
        case _:
            assert_never(engine)


def client_words(asked: Asked, probe: Stream) -> list[str]:
    """What follows the engine's Python: module and options, each an element of its own.

    Length and sampling go as the same body that our own client sends: both tools lay it over
    theirs (``--extra-request-body``, ``--extra-body``), so that neither's defaults matter.
    """
    body = sampling_words(asked.engine, probe.sampling, probe.sampling.max_new_tokens)
    match asked.engine:
        case "sglang":
            return ["-m", client_module(asked.release), *_sglang(asked, probe, json.dumps(body))]
        case "vllm":
            return ["-m", module_of("vllm"), "bench", "serve", *_vllm(asked, probe, body)]
        case _:
            assert_never(asked.engine)


def _sglang(asked: Asked, probe: Stream, body: str) -> list[str]:
    length = str(probe.sampling.max_new_tokens)
    if probe.random is None:
        data = ["--dataset-name", "custom", "--dataset-path", PROMPTS]
        data += ["--sharegpt-output-len", length]
    else:
        data = ["--dataset-name", "random-ids", "--tokenize-prompt", "--random-range-ratio", "1.0"]
        data += ["--random-input-len", str(probe.random.tokens), "--random-output-len", length]
    # Its own look whether the server is up would ask /health, which generates a token.
    ready = "ready-check-timeout-sec"
    unasked = [f"--{ready}", "0"] if client_takes(ready, asked.release) else []
    return [
        "--backend",
        "sglang",
        *_everywhere(asked),
        *data,
        "--extra-request-body",
        body,
        "--warmup-requests",
        "0",
        *unasked,
        "--tag",
        asked.tag,
        "--output-file",
        RESULT,
    ]


def _vllm(asked: Asked, probe: Stream, body: dict[str, object]) -> list[str]:
    length = str(probe.sampling.max_new_tokens)
    if probe.random is None:
        data = ["--dataset-name", "custom", "--dataset-path", PROMPTS, "--skip-chat-template"]
        data += ["--disable-shuffle", "--no-oversample", "--custom-output-len", length]
    else:
        data = ["--dataset-name", "random", "--random-range-ratio", "0.0"]
        data += ["--random-input-len", str(probe.random.tokens), "--random-output-len", length]
    return [
        "--backend",
        "vllm",
        *_everywhere(asked),
        "--served-model-name",
        asked.served,
        *data,
        "--temperature",
        f"{probe.sampling.temperature:g}",
        "--extra-body",
        json.dumps(body),
        "--num-warmups",
        "0",
        "--ready-check-timeout-sec",
        "0",
        "--percentile-metrics",
        "ttft,tpot,itl",
        "--save-result",
        "--result-dir",
        ".",
        "--result-filename",
        RESULT,
    ]


def _everywhere(asked: Asked) -> list[str]:
    """Options that both clients have under one name."""
    return [
        "--base-url",
        f"http://127.0.0.1:{asked.port}",
        "--model",
        asked.model,
        *asked.tokenizer,
        "--num-prompts",
        str(asked.requests),
        "--max-concurrency",
        str(asked.concurrency),
        "--request-rate",
        "inf",
        "--seed",
        str(asked.seed),
        "--disable-tqdm",
    ]


def prompts_file(engine: EngineKind, texts: Iterable[Text]) -> str:
    """Our prompts in the client's own format, one JSON object a line; empty for random tokens."""
    lines: list[object] = []
    for text in texts:
        if text.ids is not None:
            return ""
        match engine:
            case "sglang":
                # Of the second turn it wants the length alone, and takes ours instead.
                lines.append({"conversations": [{"content": text.text}, {"content": "an answer"}]})
            case "vllm":
                lines.append({"prompt": text.text})
            case _:
                assert_never(engine)
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def unmatched(engine: EngineKind, probe: Stream) -> tuple[str, ...]:
    """What of a probe the client does in another way (read in their source, see docs/engines.md)."""
    found = []
    match engine:
        case "sglang":
            if probe.random is None:
                found.append("prompts come in an order of its own, shuffled by the seed")
            found.append("a new connection for every request")
            found.append("its run ends only with an answer of /server_info")
        case "vllm":
            found.append("answers carry neither token ids nor a running count of tokens")
        case _:
            assert_never(engine)
    if probe.random is not None:
        ids = "token ids of its own" if engine == "sglang" else "tokens of its own, sent as text"
        found.append(f"random {ids}")
    found.append("no time limit for a request")
    return tuple(found)


def whose_acceptance(engine: EngineKind, *, flushed: bool, dp_size: int) -> str:
    """What the accept length that a client tells is the accept length of."""
    match engine:
        case "vllm":
            return "the growth of the engine's counters over its run"
        case "sglang":
            since = "the cache was emptied before it" if flushed else "the cache was last emptied"
            alone = f", of data-parallel rank 0 of {dp_size} alone" if dp_size > 1 else ""
            return f"the server's average since {since}{alone}"
        case _:
            assert_never(engine)
