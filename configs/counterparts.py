"""Which setting of one engine is which of another: the one table of counterparts.

``same`` means that the numbers mean the same, so that arms of both engines are compared only where
they are equal. ``near`` means that they are about the same thing but count it in another way: they
are set for each engine and shown side by side. What stands in no row has no counterpart; ``plan``
and the report list such settings (docs/engines.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from configs.releases import EngineKind


class Counterpart(NamedTuple):
    """One setting under the names that the engines give it (canonical, without dashes)."""

    sglang: str
    vllm: str
    weight: Literal["same", "near"]
    note: str = ""
    """How two near ones differ."""

    def name(self, engine: EngineKind) -> str:
        """What an engine calls it."""
        return self.sglang if engine == "sglang" else self.vllm


LIMIT: Final = Counterpart("max-running-requests", "max-num-seqs", "same")
"""Requests in flight at most."""
COUNTERPARTS: Final[tuple[Counterpart, ...]] = (
    Counterpart("tp-size", "tensor-parallel-size", "same"),
    Counterpart("pp-size", "pipeline-parallel-size", "same"),
    Counterpart("dp-size", "data-parallel-size", "same"),
    LIMIT,
    Counterpart("context-length", "max-model-len", "same"),
    Counterpart("dtype", "dtype", "same"),
    Counterpart("quantization", "quantization", "same"),
    Counterpart("kv-cache-dtype", "kv-cache-dtype", "same"),
    Counterpart("trust-remote-code", "trust-remote-code", "near", "changes no number by itself"),
    Counterpart("revision", "revision", "same"),
    Counterpart("tokenizer-path", "tokenizer", "same"),
    Counterpart("load-format", "load-format", "near", "other words for some formats"),
    Counterpart("random-seed", "seed", "near", "of two different generators"),
    Counterpart("served-model-name", "served-model-name", "near", "a name alone"),
    Counterpart("chat-template", "chat-template", "near", "ours is applied here, not there"),
    Counterpart(
        "mem-fraction-static",
        "gpu-memory-utilization",
        "near",
        "weights and KV cache against everything that the engine may take",
    ),
    Counterpart(
        "chunked-prefill-size",
        "max-num-batched-tokens",
        "near",
        "tokens of one prompt's chunk against tokens of a whole step",
    ),
    Counterpart(
        "cuda-graph-max-bs",
        "max-cudagraph-capture-size",
        "near",
        "requests against tokens: vLLM's counts every draft token",
    ),
    Counterpart(
        "cuda-graph-max-bs-decode",
        "max-cudagraph-capture-size",
        "near",
        "requests against tokens: vLLM's counts every draft token",
    ),
    Counterpart("cuda-graph-bs", "cudagraph-capture-sizes", "near", "requests against tokens"),
    Counterpart("disable-cuda-graph", "enforce-eager", "near", "vLLM's turns compiling off too"),
    Counterpart("page-size", "block-size", "near", "tokens of a page, of kernels that differ"),
    Counterpart("attention-backend", "attention-backend", "near", "other words for the kernels"),
    Counterpart("moe-runner-backend", "moe-backend", "near", "other words for the kernels"),
    Counterpart("disable-radix-cache", "enable-prefix-caching", "near", "the other way round"),
    Counterpart("disable-custom-all-reduce", "disable-custom-all-reduce", "near", "own kernels"),
    Counterpart("disable-overlap-schedule", "async-scheduling", "near", "the other way round"),
    Counterpart("stream-interval", "stream-interval", "near", "tokens of a chunk"),
    Counterpart("dist-init-addr", "master-addr", "near", "where ranks meet"),
    Counterpart("nnodes", "nnodes", "same"),
    Counterpart("node-rank", "node-rank", "same"),
)


def counterpart(flag: str, engine: EngineKind, other: EngineKind) -> str | None:
    """What another engine calls a flag (canonical names); None where it has no such thing."""
    if engine == other:
        return flag
    return next((row.name(other) for row in COUNTERPARTS if row.name(engine) == flag), None)


def shared(engine: EngineKind) -> dict[str, str]:
    """The engine's name -> SGLang's, of every setting that must be equal across engines."""
    return {row.name(engine): row.sglang for row in COUNTERPARTS if row.weight == "same"}


def without_counterpart(
    flags: Iterable[str], engine: EngineKind, other: EngineKind
) -> tuple[str, ...]:
    """Those flags (canonical names) that mean nothing to the other engine, in their order."""
    return tuple(flag for flag in flags if counterpart(flag, engine, other) is None)
