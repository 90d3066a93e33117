"""The SGLang flags that a way of speculating becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from configs.speculation import Eagle, Eagle3, Nextn, Ngram, Off, Standalone, drafter_of

if TYPE_CHECKING:
    from configs.names import FlagValue
    from configs.speculation import Speculation

_ALGORITHMS: Final = {
    "eagle3": "EAGLE3",
    "eagle": "EAGLE",
    "nextn": "NEXTN",
    "standalone": "STANDALONE",
    "ngram": "NGRAM",
}
_NGRAM: Final = {
    "min_breadth": "min-bfs-breadth",
    "max_breadth": "max-bfs-breadth",
    "capacity": "capacity",
    "trie_depth": "max-trie-depth",
    "branch_length": "branch-length",
    "min_window": "min-match-window-size",
    "max_window": "max-match-window-size",
}


def algorithm_of(speculation: Speculation) -> str | None:
    """SGLang's name (--speculative-algorithm); None without speculation."""
    return _ALGORITHMS.get(speculation.kind)


def speculation_flags(speculation: Speculation) -> dict[str, FlagValue]:
    """The SGLang flags of a way of speculating, by full name without dashes."""
    flags: dict[str, FlagValue] = {}
    if (algorithm := algorithm_of(speculation)) is not None:
        flags["speculative-algorithm"] = algorithm
    if (drafter := drafter_of(speculation)) is not None:
        flags["speculative-draft-model-path"] = drafter
    match speculation:
        case Off():
            return {}
        case Ngram():
            return flags | _ngram(speculation)
        case Eagle3() | Eagle() | Nextn():
            return flags | _numbers(speculation) | _adaptive(speculation)
        case Standalone():
            return flags | _numbers(speculation)
        case _:
            assert_never(speculation)


def _numbers(chain: Eagle3 | Eagle | Nextn | Standalone) -> dict[str, FlagValue]:
    if chain.num_steps is None or chain.topk is None or chain.draft_tokens is None:
        return {}
    return {
        "speculative-num-steps": chain.num_steps,
        "speculative-eagle-topk": chain.topk,
        "speculative-num-draft-tokens": chain.draft_tokens,
    }


def _adaptive(way: Eagle3 | Eagle | Nextn) -> dict[str, FlagValue]:
    if way.adaptive is None:
        return {}
    named = way.adaptive.config
    return {
        "speculative-adaptive": True,
        **({} if named is None else {"speculative-adaptive-config": named}),
    }


def _ngram(way: Ngram) -> dict[str, FlagValue]:
    flags: dict[str, FlagValue] = {"speculative-num-draft-tokens": way.draft_tokens}
    if way.match is not None:
        flags["speculative-ngram-match-type"] = way.match.upper()
    for field, flag in _NGRAM.items():
        if (value := getattr(way, field)) is not None:
            flags[f"speculative-ngram-{flag}"] = value
    if way.corpus is not None:
        flags["speculative-ngram-external-corpus-path"] = way.corpus.path
        flags["speculative-ngram-external-sam-budget"] = way.corpus.tokens
        if way.corpus.max_tokens is not None:
            flags["speculative-ngram-external-corpus-max-tokens"] = way.corpus.max_tokens
    return flags
