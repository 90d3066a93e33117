"""vLLM as an engine, and what it takes as ``--speculative-config``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, Self, assert_never

from pydantic import model_validator

from configs.flags import Flags
from configs.names import Count, EnvName, FlagValue, Text
from configs.problems import WrongKeyError
from configs.secret_names import SecretName
from configs.speculation import Eagle, Eagle3, Nextn, Ngram, Off, Standalone
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.speculation import Speculation

DEFAULT_FLAGS: Final[dict[str, FlagValue]] = {"enable-prompt-tokens-details": True}
"""Given unless the sweep says otherwise: without it no answer tells how much of a prompt came from
the prefix cache (0.33.0 entrypoints/openai/completion/serving.py)."""
ALWAYS: Final = {"VLLM_SERVER_DEV_MODE": "1"}
"""Set for every vLLM: ``/reset_prefix_cache`` and ``/server_info`` are there in this mode alone
(0.33.0 entrypoints/serve/dev)."""


_NGRAM_OF_SGLANG: Final = tuple(
    name for name in Ngram.model_fields if name not in {"kind", "draft_tokens"}
)


class Vllm(Value):
    """vLLM, and what all of its arms share."""

    kind: Literal["vllm"] = "vllm"
    model: Text
    """Folder of the target on the host."""
    flags: Flags = {}
    """Any flag by its full name without dashes: {tensor-parallel-size: 8, max-num-seqs: 64}; false
    becomes --no-NAME where the flag is a switch."""
    env: dict[EnvName, str] = {}
    """Environment of every arm on it; secrets are refused here."""
    env_from: tuple[SecretName, ...] = ()
    """Names of secrets that are taken from the controller's environment."""


class VllmSpeculation(Value):
    """What vLLM takes as ``--speculative-config`` (0.33.0 config/speculative.py)."""

    method: Literal["eagle3", "eagle", "mtp", "ngram", "draft_model"] = "eagle3"
    model: Text | None = None
    """Folder of the drafter on the host."""
    num_speculative_tokens: Count | None = None
    """Drafts per verify step, without the bonus token: SGLang's num_steps in a chain. None: as many
    as the target's own layers say (mtp alone)."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.model is None and self.method in {"eagle3", "eagle", "draft_model"}:
            raise WrongKeyError("model", f"is missing: {self.method} needs a drafter's folder")
        if self.num_speculative_tokens is None and self.method != "mtp":
            raise WrongKeyError(
                "num_speculative_tokens", f"is missing: {self.method} has no default in vLLM"
            )
        return self

    def text(self) -> str:
        """The JSON, which is one argument; quoting it for a shell is the shell's business."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False)


def vllm_speculation(speculation: Speculation) -> VllmSpeculation | None:
    """A way of speculating in vLLM's words; None without speculation.

    Raises:
        ValueError: vLLM cannot do it; :func:`not_for_vllm` says so in words.
    """
    match speculation:
        case Off():
            return None
        case Eagle3() | Eagle():
            return VllmSpeculation(
                method=speculation.kind,
                model=speculation.drafter,
                num_speculative_tokens=speculation.num_steps,
            )
        case Nextn():
            return VllmSpeculation(
                method="mtp",
                model=speculation.drafter,
                num_speculative_tokens=speculation.num_steps,
            )
        case Standalone():
            return VllmSpeculation(
                method="draft_model",
                model=speculation.drafter,
                num_speculative_tokens=speculation.num_steps,
            )
        case Ngram():
            return VllmSpeculation(
                method="ngram", num_speculative_tokens=speculation.draft_tokens - 1
            )
        case _:
            assert_never(speculation)


def not_for_vllm(speculation: Speculation) -> Iterator[tuple[str, str]]:
    """(key, what is wrong) of everything in a way of speculating that vLLM cannot do."""
    match speculation:
        case Off():
            return
        case Ngram():
            for name in _NGRAM_OF_SGLANG:
                if getattr(speculation, name) is not None:
                    yield (
                        name,
                        "is a setting of SGLang's n-grams, which vLLM's have not: leave it out",
                    )
        case Eagle3() | Eagle() | Nextn() | Standalone():
            if not isinstance(speculation, Standalone) and speculation.adaptive is not None:
                yield "adaptive", "vLLM's number of steps is fixed: leave it out"
            if speculation.topk is not None and speculation.topk > 1:
                steps = speculation.num_steps or 1
                message = (
                    f"vLLM drafts chains only, not {speculation.topk} branches: set topk: 1 and "
                    f"draft_tokens: {steps + 1}"
                )
                yield "topk", message
            elif speculation.num_steps is None and not isinstance(speculation, Nextn):
                message = (
                    "is missing: vLLM has no default here; give num_steps, topk: 1 and "
                    "draft_tokens (num_steps + 1)"
                )
                yield "num_steps", message
        case _:
            assert_never(speculation)
