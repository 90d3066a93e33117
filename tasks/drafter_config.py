"""A drafter's config.json as the engine's loader will read it, and a target's as far as needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tasks.drafter_dtype import declared_dtype
from tasks.drafter_verdict import DrafterProblem, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

Findings = Iterator[DrafterProblem | str]
"""What a check yields: problems, and warnings as plain sentences."""

IDS: Final = "eagle_aux_hidden_state_layer_ids"

# transformers' LlamaConfig fills a key that is absent; other model types are not assumed.
_LLAMA_DEFAULTS: Final = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
_LARGEST: Final = 2**40
# The order in which SGLang looks, srt/utils/hf_transformers_utils.py CONTEXT_LENGTH_KEYS.
_CONTEXT_KEYS: Final = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
_INTEGERS: Final = (
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "target_hidden_size",
    "num_aux_hidden_states",
    *_CONTEXT_KEYS,
)


@dataclass(frozen=True)
class DrafterConfig:
    """The keys of a drafter's config that decide whether it works."""

    data: Mapping[str, Any]

    @property
    def architecture(self) -> str | None:
        """The class the engine will build: the first entry of ``architectures``."""
        found = self.data.get("architectures")
        first = found[0] if isinstance(found, list) and found else None
        return first if isinstance(first, str) else None

    @property
    def is_speculators(self) -> bool:
        """Whether the file is in the layout of vLLM's speculators library."""
        return "speculators_model_type" in self.data or "speculators_config" in self.data

    @property
    def eagle_config(self) -> Mapping[str, Any]:
        """The nested object with the aux layer ids; empty where there is none."""
        found = self.data.get("eagle_config")
        return found if isinstance(found, dict) else {}

    @property
    def uses_aux(self) -> bool:
        """Whether hidden states of several layers feed the drafter."""
        return self.eagle_config.get("use_aux_hidden_state", True) is not False

    @property
    def context(self) -> int | None:
        """Longest context as SGLang derives it (get_context_length), in tokens."""
        return context_of(self.data)

    @property
    def has_draft_vocab(self) -> bool:
        """Whether ``draft_vocab_size`` is there at all; ``null`` counts."""
        return "draft_vocab_size" in self.data

    @property
    def is_tied(self) -> bool:
        """Whether the head is the embedding."""
        return self.data.get("tie_word_embeddings") is True

    def integer(self, key: str) -> int | None:
        """A whole number, or what transformers puts in its place; ``None`` where unknown."""
        return _integer(self.data, key)


def read_config(data: bytes | None) -> tuple[DrafterConfig | None, list[DrafterProblem | str]]:
    """Parse a config.json; without a config there is one problem that says why."""
    if data is None:
        hint = "give the folder that holds config.json and the weights"
        return None, [DrafterProblem(reason="config_missing", message="no config.json", hint=hint)]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"config.json is not UTF-8: {error}"
        return None, [DrafterProblem(reason="not_utf8", message=message)]
    found: list[DrafterProblem | str] = []
    if text.startswith("\ufeff"):
        found.append("config.json starts with a byte order mark (BOM): transformers may refuse it")
    twice: list[str] = []
    try:
        value = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=lambda pairs: _object(pairs, twice)
        )
    except (ValueError, RecursionError) as error:
        message = f"config.json is not JSON: {error}"
        hint = "a page or pointer of a download that failed? fetch the file again"
        return None, [*found, DrafterProblem(reason="not_json", message=message, hint=hint)]
    if not isinstance(value, dict):
        message = f"config.json holds a {type(value).__name__}, not an object"
        return None, [*found, DrafterProblem(reason="not_an_object", message=message)]
    found += [f"key {name} stands twice in config.json: the last one counts" for name in twice]
    return DrafterConfig(value), found


def flattened(config: DrafterConfig) -> DrafterConfig:
    """Lay the sizes of a speculators config beside its other keys, as vLLM does."""
    inner = config.data.get("transformer_layer_config")
    return DrafterConfig({**inner, **config.data}) if isinstance(inner, dict) else config


def check_types(config: DrafterConfig) -> Findings:
    """Find numbers that are no whole numbers: the engine would fail on them much later."""
    for key in _INTEGERS:
        value = config.data.get(key)
        if value is not None and (type(value) is not int or not 0 < value <= _LARGEST):
            yield DrafterProblem(
                reason="wrong_type",
                message=f"{key} is {value!r}, not a positive whole number",
                hint=f"write {key} as a plain number",
            )


def read_target(data: bytes) -> TargetFacts:
    """Take what the check needs from a target's config.json; multimodal ones nest it.

    Raises:
        ValueError: it is not a JSON object in UTF-8.
    """
    value = json.loads(data.decode("utf-8-sig"))
    if not isinstance(value, dict):
        # A ValueError as for any other unreadable file: callers catch one kind (TRY004).
        raise ValueError("the target's config.json is not an object")  # noqa: TRY004
    nested = value.get("text_config") or value.get("llm_config") or value.get("language_config")
    text = nested if isinstance(nested, dict) else value
    return TargetFacts(
        hidden_size=_integer(text, "hidden_size"),
        vocab_size=_integer(text, "vocab_size"),
        layers=_integer(text, "num_hidden_layers"),
        context=context_of(text),
        architecture=DrafterConfig(value).architecture,
        dtype=declared_dtype(text) or declared_dtype(value),
    )


def context_of(data: Mapping[str, Any]) -> int | None:
    """Derive the longest context from a model's config, as SGLang does."""
    scaling = data.get("rope_scaling") or data.get("rope_parameters")
    factor: float = 1
    if isinstance(scaling, dict) and "original_max_position_embeddings" not in scaling:
        given = scaling.get("factor")
        llama3 = scaling.get("rope_type") == "llama3"
        if isinstance(given, int | float) and 0 < given <= _LARGEST and not llama3:
            factor = given
    length = next((found for key in _CONTEXT_KEYS if (found := _integer(data, key))), None)
    return None if length is None else int(factor * length)


def _integer(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    if type(value) is int and 0 < value <= _LARGEST:
        return value
    return _LLAMA_DEFAULTS.get(key) if value is None and data.get("model_type") == "llama" else None


def _object(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice += sorted({name for name in names if names.count(name) > 1})
    return found
