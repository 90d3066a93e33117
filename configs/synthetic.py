"""Trying without weights: random ones, and acceptance that the engine only pretends.

SGLang's dummy loader fills every tensor with random numbers; it needs config and tokenizer alone.
``SGLANG_SIMULATE_ACC_LEN`` makes the verify step accept a given length whatever was drafted, and
write token 100 (0.5.9 and 0.5.12 spec_utils.py, 0.5.23 eagle_utils.py): drafting and verifying
cost what they cost, the text is senseless. Method ``match-expected`` has the asked mean;
``multinomial``, the default of 0.5.9, rounds and cuts a normal draw and has another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from configs.names import Number
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from configs.names import FlagValue

Weights = Literal["real", "dummy"]

LENGTH: Final = "SGLANG_SIMULATE_ACC_LEN"
METHOD: Final = "SGLANG_SIMULATE_ACC_METHOD"
PREFIX: Final = "SGLANG_SIMULATE_ACC_"
LOAD_FORMAT: Final = "load-format"
DRAFT_LOAD_FORMAT: Final = "speculative-draft-load-format"


class Simulate(Value):
    """Acceptance that the engine pretends; what is measured with it is never a drafter's."""

    accept_length: Annotated[Number, Field(ge=1)]
    """Tokens per verify step, the bonus token included: from 1 to num_steps + 1."""
    drafter: Weights = "real"
    """``dummy``: the drafter's folder needs no weights, its config alone."""


class Synthetic(Value):
    """What of a trial was made up."""

    weights: Weights = "real"
    """Of the target."""
    drafter_weights: Weights = "real"
    accept_length: float | None = None
    """The accept length that the engine was told to pretend; None: acceptance is real."""

    @property
    def words(self) -> str:
        """What was made up, for people."""
        parts = []
        if self.weights == "dummy":
            parts.append("dummy weights")
        elif self.drafter_weights == "dummy":
            parts.append("a dummy drafter")
        if self.accept_length is not None:
            parts.append(f"simulated accept length {self.accept_length:g}")
        return ", ".join(parts)


def synthetic_flags(
    weights: Weights, simulate: Simulate | None, *, drafter: bool
) -> dict[str, FlagValue]:
    """The flags of made-up weights.

    Args:
        weights: Of the engine.
        simulate: What the arm pretends.
        drafter: Whether the arm has one.
    """
    flags: dict[str, FlagValue] = {LOAD_FORMAT: "dummy"} if weights == "dummy" else {}
    if drafter and (weights == "dummy" or (simulate and simulate.drafter == "dummy")):
        flags[DRAFT_LOAD_FORMAT] = "dummy"
    return flags


def synthetic_env(simulate: Simulate | None) -> dict[str, str]:
    """The environment that makes the engine pretend."""
    if simulate is None:
        return {}
    return {LENGTH: f"{simulate.accept_length:g}", METHOD: "match-expected"}


def synthetic_of(flags: Mapping[str, FlagValue], env: Mapping[str, str]) -> Synthetic | None:
    """What of an engine with these flags and this environment is made up; None where nothing is.

    Read off what the engine is really given, so that no way of saying it escapes.
    """
    length = _length(env.get(LENGTH))
    weights: Weights = "dummy" if flags.get(LOAD_FORMAT) == "dummy" else "real"
    drafter: Weights = weights
    if flags.get(DRAFT_LOAD_FORMAT) is not None:
        drafter = "dummy" if flags[DRAFT_LOAD_FORMAT] == "dummy" else "real"
    speculating = "speculative-algorithm" in flags
    found = Synthetic(
        weights=weights,
        drafter_weights=drafter if speculating else "real",
        accept_length=length if speculating else None,
    )
    return None if found == Synthetic() else found


def _length(text: str | None) -> float | None:
    """As SGLang reads it: nothing is pretended below or at 0."""
    try:
        value = float(text or -1)
    except ValueError:
        return None
    return value if value > 0 else None
