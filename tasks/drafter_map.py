"""A drafter's token maps: d2t from its ids to the target's, t2d which of the target's it knows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tasks.drafter_verdict import DrafterProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.drafter_config import DrafterConfig, Findings
    from tasks.drafter_verdict import TargetFacts


def check_d2t(config: DrafterConfig, d2t: Sequence[object], target: TargetFacts) -> Findings:
    """Find draft tokens that map outside the target's vocabulary: target id = i + d2t[i]."""
    numbers = [value for value in d2t if type(value) is int]
    if len(numbers) != len(d2t):
        yield DrafterProblem(
            reason="d2t_not_integers", message="d2t holds other than whole numbers"
        )
        return
    size = config.integer("draft_vocab_size")
    if size is not None and len(numbers) != size:
        message = f"d2t has {len(numbers)} entries, draft_vocab_size is {size}"
        yield DrafterProblem(reason="d2t_length_mismatch", message=message)
    index = bad_index(numbers, target)
    vocab = target.vocab_size or config.integer("vocab_size")
    if index is not None:
        absolute = all(0 <= value < (vocab or 0) for value in numbers) and _rises(numbers)
        yield DrafterProblem(
            reason="d2t_out_of_range",
            message=f"d2t[{index}]: {index} + {numbers[index]} is no token of {vocab}",
            hint="these look like absolute ids: subtract the index from each" if absolute else None,
        )
    elif len({i + value for i, value in enumerate(numbers)}) < len(numbers):
        yield "d2t maps several draft tokens to the same target token"


def check_t2d(t2d: Sequence[bool], d2t: Sequence[object] | None) -> Findings:
    """Find two maps that are not each other's: a sign of pieces of two checkpoints.

    SGLang reads d2t alone (llama_eagle3.py skips t2d), so this is no reason to refuse.
    """
    numbers = [value for value in d2t or () if type(value) is int]
    if d2t is None or len(numbers) != len(d2t):
        return
    known = {token for token, there in enumerate(t2d) if there}
    reached = {index + value for index, value in enumerate(numbers)}
    if known != reached:
        yield (
            f"t2d marks {len(known)} target tokens and d2t reaches {len(reached)}, "
            f"{len(known & reached)} of them in common: are they of two checkpoints?"
        )


def bad_index(d2t: Sequence[object], target: TargetFacts) -> int | None:
    """Return the first index of d2t that leaves the target's vocabulary."""
    if target.vocab_size is None:
        return None
    for index, value in enumerate(d2t):
        if type(value) is int and not 0 <= index + value < target.vocab_size:
            return index
    return None


def _rises(values: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(values))
