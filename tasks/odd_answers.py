"""What was odd about the answers of a probe, in words: those that failed, those cut short."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.record import Sample

CUT_SHORT = "answers cut short by the context"
FAILED = "failed with"


def odd_answers(samples: Iterable[Sample], max_new_tokens: int) -> tuple[str, ...]:
    """One sentence for each kind of oddity, with how many rows and an example.

    An answer that ends for its length before it has the asked number of tokens met the end of
    the model's context: engines shorten the limit to what is left of it without a word.

    Args:
        samples: the probe's requests.
        max_new_tokens: what every request asked for.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        if sample.error is not None:
            found[f"{FAILED} {sample.error}"].append(sample.id)
        elif sample.finish == "length" and sample.completion_tokens < max_new_tokens:
            seen = f"{sample.id}: {sample.completion_tokens} of {max_new_tokens} tokens"
            found[CUT_SHORT].append(seen)
    return tuple(
        f"{kind}: {len(rows)} row{'s' if len(rows) > 1 else ''}, e.g. {rows[0]}"
        for kind, rows in found.items()
    )
