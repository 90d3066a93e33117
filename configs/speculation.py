"""Ways of speculating, as SGLang names them, and the flags that each becomes.

Numbers: a chain (``topk: 1``) of ``num_steps`` drafts is verified with ``num_steps + 1`` tokens;
SGLang adjusts any other number silently (0.5.9 server_args.py, same in 0.5.23 speculative_hook.py),
so a file that asks for another number is refused here.
"""

from __future__ import annotations

from typing import Literal, Self, assert_never

from pydantic import model_validator

from configs.names import Count, FlagValue, Text
from configs.problems import WrongKeyError
from configs.values import Value


class Off(Value):
    """No speculation: what every claim is measured against."""

    kind: Literal["off"] = "off"


class _Chain(Value):
    """Drafting in steps; all three numbers, or none (then the engine chooses)."""

    num_steps: Count | None = None
    """Draft steps per verify step (--speculative-num-steps)."""
    topk: Count | None = None
    """Branches kept per draft step (--speculative-eagle-topk); 1 is a chain."""
    draft_tokens: Count | None = None
    """Tokens per verify step (--speculative-num-draft-tokens); num_steps + 1 for a chain."""

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
        most = self.topk + (self.num_steps - 1) * self.topk**2 + 1
        if self.draft_tokens > most:
            raise WrongKeyError(
                "draft_tokens",
                f"a tree of num_steps {self.num_steps} and topk {self.topk} has at most {most} "
                f"tokens, not {self.draft_tokens}: lower draft_tokens",
            )
        return self


class Eagle3(_Chain):
    """EAGLE-3: a drafter that reads three hidden layers of the target."""

    kind: Literal["eagle3"] = "eagle3"
    drafter: Text
    """Folder of the drafter on the host (--speculative-draft-model-path)."""
    eagle2: bool = False
    """True for an EAGLE/EAGLE-2 drafter (--speculative-algorithm EAGLE)."""


class Nextn(_Chain):
    """The target's own multi-token-prediction layer (--speculative-algorithm NEXTN)."""

    kind: Literal["nextn"] = "nextn"
    drafter: Text | None = None
    """Folder of a separately stored NEXTN layer; none when the target's checkpoint holds it."""


class Standalone(_Chain):
    """A small language model as drafter (--speculative-algorithm STANDALONE)."""

    kind: Literal["standalone"] = "standalone"
    drafter: Text
    """Folder of the small model on the host."""


class Ngram(Value):
    """Drafts copied from earlier text (--speculative-algorithm NGRAM); no drafter."""

    kind: Literal["ngram"] = "ngram"
    draft_tokens: Count
    """Tokens per verify step."""


Speculation = Off | Eagle3 | Nextn | Standalone | Ngram


def drafter_of(speculation: Speculation) -> str | None:
    """The folder of the drafter on the host, or None where there is none."""
    match speculation:
        case Off() | Ngram():
            return None
        case Eagle3() | Nextn() | Standalone():
            return speculation.drafter
        case _:
            assert_never(speculation)


def drafts_with_a_model(speculation: Speculation) -> bool:
    """Whether a model proposes the drafts, be it a part of the target's own weights."""
    match speculation:
        case Off() | Ngram():
            return False
        case Eagle3() | Nextn() | Standalone():
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
        case Eagle3() | Nextn() | Standalone():
            return speculation.num_steps
        case _:
            assert_never(speculation)


def _algorithm(speculation: Eagle3 | Nextn | Standalone | Ngram) -> str:
    match speculation:
        case Eagle3():
            return "EAGLE" if speculation.eagle2 else "EAGLE3"
        case Nextn():
            return "NEXTN"
        case Standalone():
            return "STANDALONE"
        case Ngram():
            return "NGRAM"
        case _:
            assert_never(speculation)


def speculation_flags(speculation: Speculation) -> dict[str, FlagValue]:
    """The SGLang flags of a way of speculating, by full name without dashes."""
    if isinstance(speculation, Off):
        return {}
    flags: dict[str, FlagValue] = {"speculative-algorithm": _algorithm(speculation)}
    drafter = drafter_of(speculation)
    if drafter is not None:
        flags["speculative-draft-model-path"] = drafter
    if isinstance(speculation, Ngram):
        flags["speculative-num-draft-tokens"] = speculation.draft_tokens
    elif speculation.num_steps is not None:
        flags["speculative-num-steps"] = speculation.num_steps
        flags["speculative-eagle-topk"] = speculation.topk or 1
        flags["speculative-num-draft-tokens"] = (
            speculation.draft_tokens or speculation.num_steps + 1
        )
    return flags
