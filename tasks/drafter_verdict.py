"""What is known of a target and an engine, and what the check of a drafter says about them."""

from __future__ import annotations

from typing import Literal

from configs.values import Value

DrafterReason = Literal[
    "config_missing",
    "not_utf8",
    "not_json",
    "not_an_object",
    "speculators_format",
    "arch_missing",
    "arch_not_eagle3",
    "arch_unsupported",
    "algorithm_mismatch",
    "model_type_missing",
    "wrong_type",
    "eagle_config_not_object",
    "layer_ids_not_read",
    "layer_ids_empty",
    "layer_ids_not_integers",
    "layer_ids_repeated",
    "layer_id_out_of_range",
    "aux_width_mismatch",
    "aux_count_unsupported",
    "draft_layers_unsupported",
    "hidden_size_mismatch",
    "vocab_size_mismatch",
    "draft_vocab_size_missing",
    "draft_vocab_size_invalid",
    "draft_vocab_size_mismatch",
    "lm_head_missing_in_weights",
    "lm_head_not_shareable",
    "weights_missing",
    "weights_unreadable",
    "embed_tokens_missing_in_weights",
    "fc_missing_in_weights",
    "decoder_layer_missing_in_weights",
    "weight_names_not_read",
    "attention_width_mismatch",
    "d2t_missing_in_weights",
    "d2t_length_mismatch",
    "d2t_not_integers",
    "d2t_out_of_range",
    "draft_context_too_short",
    "dtype_mismatch",
]


Head = Literal["own", "target", "embedding", "missing"]
"""Where the output head comes from: the checkpoint, the target (``draft_vocab_size: null``), the
drafter's own embedding (tied), or nowhere: then it stays random."""


class TargetFacts(Value):
    """What the check needs to know of the target model; ``None`` where it is not known."""

    hidden_size: int | None = None
    """Width of a hidden state."""
    vocab_size: int | None = None
    """Number of tokens in the vocabulary."""
    layers: int | None = None
    """Number of decoder layers."""
    context: int | None = None
    """Longest context that the model's config derives, in tokens."""
    architecture: str | None = None
    """First entry of ``architectures``."""
    dtype: str | None = None
    """Number type that its config names, such as ``bfloat16``."""


class EngineFacts(Value):
    """What the check needs to know of the engine and its flags."""

    framework: Literal["sglang", "vllm"]
    """Which engine loads the drafter."""
    version: str | None = None
    """Its version; where unknown, the rules of the newest known release are used."""
    speculative_algorithm: str | None = None
    """The algorithm asked for, such as ``EAGLE3``; ``None`` means that."""
    context_length: int | None = None
    """Context length asked for, in tokens."""
    dtype: str | None = None
    """``--dtype``, where it is given."""
    allow_longer_context: bool = False
    """``SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1`` is set."""


class DrafterProblem(Value):
    """One reason why the drafter will not load, or will load and accept nothing."""

    reason: DrafterReason
    """Name to search for."""
    message: str
    """What is wrong, with the numbers."""
    hint: str | None = None
    """What to do about it."""
    draft: int | None = None
    """The drafter's number, where two numbers disagree."""
    target: int | None = None
    """The target's number, where two numbers disagree."""


class DrafterVerdict(Value):
    """What the check found; every problem at once, the most basic one first."""

    ok: bool
    """Nothing stands against a start; warnings may still stand against the numbers."""
    reason: DrafterReason | None = None
    """The first problem."""
    also: tuple[DrafterReason, ...] = ()
    """The other problems."""
    problems: tuple[DrafterProblem, ...] = ()
    """All problems, in words."""
    warnings: tuple[str, ...] = ()
    """What may cost acceptance or differ between versions."""
    ok_for: tuple[str, ...] = ()
    """Engines that can load this format."""
    capture_layers: tuple[int, ...] | None = None
    """Target layers in front of which the engine really takes hidden states (0-based)."""
    num_aux: int | None = None
    """How many hidden states the drafter gets side by side; 0 if only the last layer's."""
    num_aux_by_config: int | None = None
    """How many the config asks for."""
    num_aux_by_weights: int | None = None
    """How many fit into the checkpoint's ``fc`` layer; ``None`` if it is not known."""
    head: Head | None = None
    """Where the output head comes from; ``None`` if it is not known."""
    draft_context: int | None = None
    """Longest context of the drafter, in tokens."""
    target_context: int | None = None
    """Context that the server will run with, in tokens."""
    bad_index: int | None = None
    """First index of ``d2t`` that leaves the target's vocabulary."""
    config_sha256: str | None = None
    """Digest of config.json: which drafter this was."""
    weights_sha256: str | None = None
    """Digest of the tensors' names, types and shapes; not of their values."""

    @property
    def hints(self) -> tuple[str, ...]:
        """What to do, one line per problem that has a remedy."""
        return tuple(problem.hint for problem in self.problems if problem.hint)

    @property
    def remedy(self) -> str | None:
        """What to do about the first problem."""
        return self.hints[0] if self.hints else None
