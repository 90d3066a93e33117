"""What is known of NCCL's environment variables, and what is wrong with a value.

The table configs/engines/nccl-variables.tsv holds every variable of NCCL's user guide
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, read at the state that knows
2.32) with its values, the release that brought it, and what took its place. NCCL itself says
nothing of a misspelt name, and little of a wrong value.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.releases import EngineKind

_TABLE = Path(__file__).parent / "engines" / "nccl-variables.tsv"
GUIDE: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_GPUS = re.compile(r"[0-9]{1,3}(?:,[0-9]{1,3})*")
# The collectives that NCCL_ALGO and NCCL_PROTO may name since 2.24 (src/graph/tuning.cc).
_COLLECTIVES: Final = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
# "These numerical values were kept for retro-compatibility" (guide, NCCL_P2P_LEVEL).
_ENDS: Final = {"deprecated": "is deprecated since", "removed": "was removed in"}
_LEGACY: Final = {"0": "LOC", "1": "PIX", "2": "PXB", "3": "PHB"}


class Variable(NamedTuple):
    """One variable of the guide."""

    name: str
    values: str
    """How its values are made, a word of :func:`_value_problem`; then what they are."""
    since: str
    """The NCCL release that brought it; empty where the guide does not say."""
    ended: str
    """``is deprecated since NCCL 2.17`` or the like; empty: it is in use."""
    instead: str

    @property
    def source(self) -> str:
        """The variable's place in the guide."""
        return f"{GUIDE}#{self.name.lower().replace('_', '-')}"


@cache
def variables() -> Mapping[str, Variable]:
    """The table by name."""
    found = {}
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, values, since, end = line.split("\t")
        how, release, instead = end.split() or ("", "", "")
        ended = f"{_ENDS[how]} NCCL {release}" if how else ""
        found[name] = Variable(name, values, since, ended, instead)
    return found


def value_problem(name: str, value: str, engines: Sequence[EngineKind] = ("sglang",)) -> str | None:
    """Why a variable must not have this value, and what would be right; None if it may.

    Names that are not in the table may have any value: a newer NCCL may know them.

    Args:
        name: Of the variable.
        value: Its text.
        engines: Whose environment it is.
    """
    if name == "CUDA_VISIBLE_DEVICES" and "sglang" in engines:
        if _GPUS.fullmatch(value):
            return None
        return (
            f"is {value!r}: SGLang reads it with int() and ends at once on a UUID "
            "(custom_all_reduce_utils.py); name GPUs by number, such as 0,1,2,3"
        )
    known = variables().get(name)
    if known is None:
        return None
    kind, _, allowed = known.values.partition(":")
    wrong = _value_problem(kind, allowed, value)
    return wrong and f"{wrong} (NCCL's user guide, {known.source})"


def similar(name: str) -> str | None:
    """The known variable that a name was probably meant to be."""
    close = difflib.get_close_matches(name, variables(), n=1, cutoff=0.75)
    return close[0] if close else None


def legacy_level(name: str, value: str) -> str | None:
    """What a path level that is written as a number means to NCCL; None for a word."""
    known = variables().get(name)
    if known is None or not known.values.startswith("level:") or not _WHOLE.fullmatch(value):
        return None
    return _LEGACY.get(value, "SYS")


def lacks_ring(value: str) -> bool:
    """Whether a NCCL_ALGO leaves some collective without Ring, the one that each of them has."""
    for entry in value.split(";"):
        collective, _, algorithms = entry.lower().rpartition(":")
        names = algorithms.removeprefix("^").split(",")
        if collective != "allreduce" and ("ring" in names) == algorithms.startswith("^"):
            return True
    return False


def _value_problem(kind: str, allowed: str, value: str) -> str | None:
    words = allowed.split(",") if allowed else []
    match kind:
        case "one":
            return None if _one_of(value, words) else f"is {value!r}: {_choice(value, words)}"
        case "int":
            return _outside(allowed, value)
        case "level":
            if _one_of(value, words) or (_WHOLE.fullmatch(value) and int(value) >= 0):
                return None
            return f"is {value!r}: {_choice(value, words)}"
        case "list":
            return _unknown_word(value.removeprefix("^").split(","), words)
        case "joined":
            return _unknown_word(value.split("|"), words)
        case "functions":
            return _functions_problem(value, words)
        case "path":
            if value.startswith("~"):
                return "begins with ~, which NCCL does not expand: write the whole path"
            return None
        case "secret":
            return "is a key: name it under env_from, and set it in the controller's environment"
        case _:
            return None


def _outside(allowed: str, value: str) -> str | None:
    """What is wrong with a whole number; ``allowed`` is from-to, or from- without an upper end."""
    # Tests try every row of the table: it always matches.
    low, high = re.fullmatch(r"(-?\d+)-(\d*)", allowed).groups()  # type: ignore[union-attr]
    right = f"from {low} to {high}" if high else f"of at least {low}"
    if not _WHOLE.fullmatch(value):
        return f"must be a whole number {right}, not {value!r}"
    if int(value) < int(low) or (high and int(value) > int(high)):
        return f"must be a whole number {right}, not {value}"
    return None


def _functions_problem(value: str, words: Sequence[str]) -> str | None:
    """``Ring,Tree``, ``^Tree``, or since 2.24 ``ring;allreduce:tree;broadcast:ring``."""
    for index, entry in enumerate(value.split(";")):
        collective, colon, names = entry.rpartition(":")
        if colon and not _one_of(collective, _COLLECTIVES):
            return f"names the collective {collective!r}: {_choice(collective, _COLLECTIVES)}"
        if not colon and index:
            return f"has {entry!r} behind a ';' without its collective: write allreduce:{entry}"
        wrong = _unknown_word(names.removeprefix("^").split(","), words)
        if wrong:
            return wrong
    return None


def _unknown_word(given: Sequence[str], words: Sequence[str]) -> str | None:
    unknown = next((word for word in given if not _one_of(word.removeprefix("^"), words)), None)
    return None if unknown is None else f"holds {unknown!r}: {_choice(unknown, words)}"


def _one_of(value: str, words: Sequence[str]) -> bool:
    return value.lower() in [word.lower() for word in words]


def _choice(value: str, words: Sequence[str]) -> str:
    folded = {word.lower(): word for word in words}
    close = difflib.get_close_matches(value.lower(), folded, n=1)
    return f"did you mean {folded[close[0]]}?" if close else f"one of {', '.join(words)}"
