"""What every request of a probe shares: how it becomes a prompt, how its tokens are chosen."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from configs.names import Count, Number
from configs.values import Value


class Sampling(Value):
    """How tokens are chosen; part of the fingerprint, never compared across."""

    temperature: Annotated[Number, Field(ge=0, le=5)] = 0.0
    """0: the most likely token each time, so that outputs can be held against the baseline's."""
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    """Share of the probability to draw from; 1: all of it."""
    max_new_tokens: Count = 256
    """Output limit per request (tokens)."""
    ignore_eos: bool = False
    """True: every answer has max_new_tokens; past its natural end text tends to loop, which
    flatters acceptance (sglang#34145)."""


class Template(Value):
    """How messages become a prompt."""

    kind: Literal["model", "none"] = "model"
    """model: the model's own chat template; none: the plain text of the messages."""
    arguments: dict[str, bool | int | str] = {}
    """Extra arguments of the template, e.g. {thinking: false}."""
