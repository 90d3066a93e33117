"""Message sizes of the all-reduces that a sweep's own decode makes: rows x hidden size x bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from configs.layers import arm_flags, reference_levels
from configs.speculation import Off
from configs.speculation_flags import speculation_flags
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from configs.sweep import Sweep

_BYTES: Final = {"float16": 2, "half": 2, "bfloat16": 2, "float32": 4, "float": 4}
_MULTIPLES: Final = (1, 2, 4)
"""A plain decode step has one row a request; a verify step has as many as it looks at tokens."""
MOST_SIZES: Final = 10
_NESTED: Final = ("text_config", "language_config", "llm_config")


class Sizes(Value):
    """What is reduced in one decode or verify step."""

    hidden: int
    """Numbers in one token's row."""
    dtype: str
    """As torch calls it."""
    rows: tuple[int, ...]
    """Tokens in one step, rising; requests x tokens that are looked at for each."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's row."""
        return self.hidden * _BYTES[self.dtype]

    @property
    def elements(self) -> tuple[int, ...]:
        """Numbers in each message."""
        return tuple(rows * self.hidden for rows in self.rows)

    @property
    def bytes(self) -> tuple[int, ...]:
        """Bytes of each message."""
        return tuple(rows * self.row_bytes for rows in self.rows)


class SizesUnknownError(Exception):
    """The target's config.json does not say how wide its layers are."""


def decode_sizes(sweep: Sweep, config: Mapping[str, Any]) -> Sizes:
    """The sizes of a sweep's decode steps.

    Args:
        sweep: The question; its probes give the requests in flight, its arms the draft tokens.
        config: The target's config.json, as the host has it.

    Raises:
        SizesUnknownError: It names no hidden size.
    """
    text = _text_part(config)
    hidden = text.get("hidden_size")
    if not isinstance(hidden, int) or hidden < 1:
        raise SizesUnknownError("config.json of the target has no hidden_size")
    users = {level for probe in sweep.probes.values() for level in probe.concurrency}
    drafts = {_looked_at(sweep, arm) for arm in sweep.arms}
    rows = sorted({user * many for user in users for many in {*_MULTIPLES, *drafts}})
    return Sizes(hidden=hidden, dtype=_dtype(sweep, config, text), rows=spread(rows, MOST_SIZES))


def spread(values: Sequence[int], most: int) -> tuple[int, ...]:
    """At most so many of them, the first and the last among them, the others evenly between."""
    if len(values) <= most:
        return tuple(values)
    last = len(values) - 1
    picked = {round(index * last / (most - 1)) for index in range(most)}
    return tuple(values[index] for index in sorted(picked))


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's own part of a model that has several."""
    if "hidden_size" in config:
        return config
    nested = (config.get(name) for name in _NESTED)
    return next((part for part in nested if isinstance(part, dict)), config)


def _looked_at(sweep: Sweep, arm: str) -> int:
    """Tokens of each request in one step of the target."""
    speculation = sweep.arms[arm].speculation
    if isinstance(speculation, Off):
        return 1
    flags = speculation_flags(speculation)
    given = flags.get("speculative-num-draft-tokens")
    return given if isinstance(given, int) and given > 0 else 1


def _dtype(sweep: Sweep, config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """The type of the activations: the flag, else the model's; float32 models are served as half.

    SGLang's ``--dtype auto`` makes float16 of float32 (configs/model_config.py); where nothing is
    said, and for quantised weights, activations are bfloat16.
    """
    asked = str(arm_flags(sweep, sweep.baseline, reference_levels(sweep)).get("dtype", "auto"))
    if asked in _BYTES:
        return {"half": "float16", "float": "float32"}.get(asked, asked)
    said = (part.get(key) for part in (text, config) for key in ("dtype", "torch_dtype"))
    known = next((str(word).removeprefix("torch.") for word in said if word), "bfloat16")
    return {"float32": "float16"}.get(known, known if known in _BYTES else "bfloat16")


def size_words(size_bytes: int) -> str:
    """14,336 as 14 KiB, for people."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes} B"


def sizes_words(sizes: Iterable[int]) -> str:
    """The smallest and the largest."""
    known = sorted(sizes)
    ends = dict.fromkeys([size_words(known[0]), size_words(known[-1])])
    return " to ".join(ends)
