"""Ways of speculating, as SGLang names them, and the constraints between their numbers.

A chain (``topk: 1``) of ``num_steps`` drafts is verified with ``num_steps + 1`` tokens; SGLang
adjusts any other number silently (0.5.9 server_args.py, same in 0.5.23 speculative_hook.py), so a
file that asks for another number is refused here. The flags that each becomes are in
configs/speculation_flags.py; what a way says against other flags, in configs/speculation_rules.py.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, assert_never

from pydantic import Field, model_validator

from configs.names import Count, Text
from configs.problems import WrongKeyError
from configs.values import Value

ADAPTIVE_STEPS: Final = (1, 3, 5, 7)
"""Step counts among which SGLang changes without a configuration of its own: 1, 3, 7 and the first
one in 0.5.11 and 0.5.12, these (and 0) in 0.5.23 (adaptive_spec_params.py)."""
# Defaults of the engine that a half-given pair is held against (server_args.py).
_BREADTHS: Final = (1, 10)
_WINDOWS: Final = (1, 12)
_BRANCH: Final = 18

AtLeastTwo = Annotated[Count, Field(ge=2)]


class Off(Value):
    """No speculation: what every claim is measured against."""

    kind: Literal["off"] = "off"


class _Chain(Value):
    """Drafting in steps; all three numbers, or none (then the engine chooses)."""

    num_steps: Count | None = None
    """Draft steps per verify step (--speculative-num-steps)."""
    topk: Count | None = None
    """Branches kept per draft step (--speculative-eagle-topk); 1 is a chain, more are a tree."""
    draft_tokens: Count | None = None
    """Tokens per verify step (--speculative-num-draft-tokens); num_steps + 1 for a chain, for a
    tree up to 1 + topk + (num_steps - 1) * topk * topk."""

    @model_validator(mode="after")
    def _numbers_agree(self) -> Self:
        given = {
            "num_steps": self.num_steps,
            "topk": self.topk,
            "draft_tokens": self.draft_tokens,
        }
        missing = [name for name, number in given.items() if number is None]
        if self.num_steps is None or self.topk is None or self.draft_tokens is None:
            if len(missing) < len(given):
                raise WrongKeyError(
                    missing[0],
                    "is missing: give num_steps, topk and draft_tokens together, or none of them "
                    "(then the engine chooses)",
                )
            return self
        if self.topk == 1 and self.draft_tokens != self.num_steps + 1:
            raise WrongKeyError(
                "draft_tokens",
                f"topk 1 with num_steps {self.num_steps} verifies {self.num_steps + 1} tokens, not "
                f"{self.draft_tokens} (SGLang would adjust it silently): set draft_tokens: "
                f"{self.num_steps + 1}",
            )
        # spec_utils.py keeps topk branches of the first step and topk * topk of each later one.
        most = self.topk + (self.num_steps - 1) * self.topk**2 + 1
        if self.draft_tokens > most:
            raise WrongKeyError(
                "draft_tokens",
                f"a tree of num_steps {self.num_steps} and topk {self.topk} has at most {most} "
                f"tokens, not {self.draft_tokens}: lower draft_tokens",
            )
        if self.draft_tokens == 1:
            raise WrongKeyError(
                "draft_tokens",
                "1 is the token that is certain already, so nothing is drafted: raise it, or say "
                "speculation: {kind: off}",
            )
        return self


class Adaptive(Value):
    """The engine changes the number of steps as acceptance changes (SGLang from 0.5.11)."""

    config: Text | None = None
    """JSON file on the host with the step counts to choose from (--speculative-adaptive-config);
    none: the engine's own."""


class _Adapting(_Chain):
    """A way whose number of steps the engine may change while it runs."""

    adaptive: Adaptive | None = None
    """``{}`` lets the engine choose the number of steps (--speculative-adaptive)."""

    @model_validator(mode="after")
    def _can_adapt(self) -> Self:
        if self.adaptive is None:
            return self
        if self.topk not in {None, 1}:
            raise WrongKeyError(
                "adaptive",
                f"works with topk 1, not {self.topk} (SGLang would fall back to fixed steps with "
                "no more than a line in its log): set topk: 1, or leave adaptive out",
            )
        if self.adaptive.config is None and self.num_steps not in {None, *ADAPTIVE_STEPS}:
            raise WrongKeyError(
                "num_steps",
                f"{self.num_steps} is not among the steps that SGLang changes between: begin with "
                f"one of {', '.join(map(str, ADAPTIVE_STEPS))}, or name them in adaptive.config",
            )
        return self


class Eagle3(_Adapting):
    """EAGLE-3: a drafter that reads three hidden layers of the target."""

    kind: Literal["eagle3"] = "eagle3"
    drafter: Text
    """Folder of the drafter on the host (--speculative-draft-model-path)."""


class Eagle(_Adapting):
    """EAGLE and EAGLE-2: a drafter that reads the target's last hidden layer."""

    kind: Literal["eagle"] = "eagle"
    drafter: Text
    """Folder of the drafter on the host."""


class Nextn(_Adapting):
    """The target's own multi-token-prediction layer (--speculative-algorithm NEXTN)."""

    kind: Literal["nextn"] = "nextn"
    drafter: Text | None = None
    """Folder of a separately stored NEXTN layer; none when the target's checkpoint holds it."""


class Standalone(_Chain):
    """A small language model as drafter (--speculative-algorithm STANDALONE)."""

    kind: Literal["standalone"] = "standalone"
    drafter: Text
    """Folder of the small model on the host; it needs the target's tokenizer."""


class Corpus(Value):
    """A text that drafts are copied from besides the requests' own (SGLang from 0.5.11)."""

    path: Text
    """Folder or file on the host (--speculative-ngram-external-corpus-path)."""
    tokens: Count
    """Drafts of each step reserved for it (--speculative-ngram-external-sam-budget)."""
    max_tokens: Count | None = None
    """The start fails above so many tokens of text (...-external-corpus-max-tokens)."""


class Ngram(Value):
    """Drafts copied from earlier text (--speculative-algorithm NGRAM); no drafter.

    Constraints: ngram.cpp of 0.5.9 and of 0.5.12, which throw when the model is loaded already.
    """

    kind: Literal["ngram"] = "ngram"
    draft_tokens: AtLeastTwo
    """Tokens per verify step, the one that is certain already included."""
    match: Literal["bfs", "prob"] | None = None
    """How continuations are chosen: all by breadth, or the most frequent (...-match-type)."""
    min_breadth: Count | None = None
    """Continuations per place after a short match (--speculative-ngram-min-bfs-breadth; 1)."""
    max_breadth: Count | None = None
    """Continuations per place after a long match (--speculative-ngram-max-bfs-breadth; 10);
    SGLang takes it for topk."""
    capacity: Count | None = None
    """Nodes of the store of earlier text (--speculative-ngram-capacity)."""
    trie_depth: AtLeastTwo | None = None
    """Longest piece of text kept (--speculative-ngram-max-trie-depth; from 0.5.10.post1)."""
    branch_length: AtLeastTwo | None = None
    """The same in 0.5.9 (--speculative-ngram-branch-length; 18)."""
    min_window: Count | None = None
    """Shortest match, 0.5.9 only (--speculative-ngram-min-match-window-size; 1)."""
    max_window: Count | None = None
    """Longest match, 0.5.9 only (--speculative-ngram-max-match-window-size; 12)."""
    corpus: Corpus | None = None
    """A text to copy drafts from besides the requests' own."""

    @model_validator(mode="after")
    def _numbers_agree(self) -> Self:
        least, most = _either(self.min_breadth, self.max_breadth, _BREADTHS)
        if least > most:
            raise WrongKeyError(
                "min_breadth", f"is {least}, above max_breadth {most}: lower it, or raise the other"
            )
        older = [
            name
            for name in ("branch_length", "min_window", "max_window")
            if getattr(self, name) is not None
        ]
        newer = [name for name in ("trie_depth", "corpus") if getattr(self, name) is not None]
        if older and newer:
            raise WrongKeyError(
                older[0], f"is of SGLang 0.5.9, {newer[0]} of newer releases: no release has both"
            )
        if older:
            self._windows()
        if self.corpus is not None and self.corpus.tokens > self.draft_tokens - 1:
            raise WrongKeyError(
                "corpus",
                f"tokens {self.corpus.tokens} is above draft_tokens - 1 "
                f"({self.draft_tokens - 1}): lower it, or raise draft_tokens",
            )
        return self

    def _windows(self) -> None:
        branch = self.branch_length or _BRANCH
        shortest, longest = _either(self.min_window, self.max_window, _WINDOWS)
        if shortest > longest:
            raise WrongKeyError(
                "min_window",
                f"is {shortest}, above max_window {longest}: lower it, or raise the other",
            )
        if longest >= branch:
            raise WrongKeyError(
                "max_window" if self.max_window else "branch_length",
                f"the longest match ({longest}) must be shorter than branch_length ({branch}): "
                f"set max_window: {branch - 1} or raise branch_length",
            )


Speculation = Off | Eagle3 | Eagle | Nextn | Standalone | Ngram


def _either(low: int | None, high: int | None, defaults: tuple[int, int]) -> tuple[int, int]:
    """A pair with the engine's own numbers where none are given."""
    return low or defaults[0], high or defaults[1]


def drafter_of(speculation: Speculation) -> str | None:
    """The folder of the drafter on the host, or None where there is none."""
    match speculation:
        case Off() | Ngram():
            return None
        case Eagle3() | Eagle() | Nextn() | Standalone():
            return speculation.drafter
        case _:
            assert_never(speculation)


def drafts_with_a_model(speculation: Speculation) -> bool:
    """Whether a model proposes the drafts, be it a part of the target's own weights."""
    match speculation:
        case Off() | Ngram():
            return False
        case Eagle3() | Eagle() | Nextn() | Standalone():
            return True
        case _:
            assert_never(speculation)


def most_drafts(speculation: Speculation) -> int | None:
    """Drafts that one verify step can accept at most (K); None where the engine chooses."""
    match speculation:
        case Off():
            return 0
        case Ngram():
            return speculation.draft_tokens - 1
        case Eagle3() | Eagle() | Nextn():
            if speculation.adaptive is not None:
                return ADAPTIVE_STEPS[-1] if speculation.adaptive.config is None else None
            return _path(speculation)
        case Standalone():
            return _path(speculation)
        case _:
            assert_never(speculation)


def _path(chain: _Chain) -> int | None:
    """Drafts on the longest path of a chain or tree."""
    if chain.num_steps is None or chain.draft_tokens is None:
        return None
    return min(chain.num_steps, chain.draft_tokens - 1)
