"""What is known of SGLang's command-line flags, and what is wrong with the flags in a file.

The table configs/engines/sglang-flags.tsv holds every option name of nine released wheels (0.5.9
to 0.5.23) with its canonical name and the first and last of them that has it. argparse accepts any
unambiguous abbreviation silently (measured for 0.5.9 and 0.5.23), so a sweep that says ``tp: 8``
would work today and break with the next release: only full names are taken.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from configs.names import FlagValue

_TABLE = Path(__file__).parent / "engines" / "sglang-flags.tsv"
_FULL_NAME = re.compile(r"^[a-z0-9][a-z0-9-]*$")
_WORDS_FOR_TRUTH = {"yes", "no", "on", "off", "y", "n", "true", "false"}

# Set by the product itself; a second way to say the same thing is refused.
_OURS = {
    "model-path": "engine.model",
    "host": "the host file's listen",
    "port": "the host file's port",
    "api-key": "the host file's api_key_from",
}
_SPECULATION = {
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
}
_WHOLE_NUMBERS = {
    "tp-size",
    "dp-size",
    "pp-size",
    "ep-size",
    "max-running-requests",
    "cuda-graph-max-bs",
    "cuda-graph-max-bs-decode",
    "context-length",
    "decode-log-interval",
    "chunked-prefill-size",
    "max-total-tokens",
    "page-size",
}


class KnownFlag(NamedTuple):
    """One option name of the engine."""

    name: str
    canonical: str
    first: str
    last: str


class FlagProblem(NamedTuple):
    """What is wrong with one flag, and what would be right."""

    flag: str
    message: str


@cache
def known_flags() -> dict[str, KnownFlag]:
    """The table, by option name without dashes."""
    rows = (
        line.split("\t")
        for line in _TABLE.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )
    return {row[0]: KnownFlag(*row) for row in rows}


def release(version: str) -> tuple[int, ...]:
    """A version as numbers for comparing: 0.5.10.post1 -> (0, 5, 10, 1)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def canonical(flag: str) -> str:
    """The one name that a flag and its aliases share."""
    known = known_flags().get(flag)
    return known.canonical if known else flag


def in_version(flag: str, version: str) -> bool | None:
    """Whether this release has the flag; None for flags or releases beyond the table."""
    known = known_flags().get(flag)
    if known is None:
        return None
    wanted = release(version)
    newest = max(release(entry.last) for entry in known_flags().values())
    if wanted > newest:
        return None
    return release(known.first) <= wanted <= release(known.last)


def flag_problems(flags: Mapping[str, FlagValue]) -> Iterator[FlagProblem]:
    """Everything wrong with one mapping of flags, in its order."""
    seen: dict[str, str] = {}
    for flag, value in flags.items():
        name = _name_problem(flag)
        if name is not None:
            yield FlagProblem(flag, name)
            continue
        one = canonical(flag)
        if one in seen:
            yield FlagProblem(flag, f"is another name of {seen[one]}, which is given too: keep one")
        seen[one] = flag
        kind = _value_problem(one, value)
        if kind is not None:
            yield FlagProblem(flag, kind)


def unknown_flags(flags: Mapping[str, FlagValue]) -> list[str]:
    """Flags that no release in the table has: allowed (a newer engine may), but said."""
    return [flag for flag in flags if flag not in known_flags()]


def _name_problem(flag: str) -> str | None:
    plain = flag.lstrip("-").replace("_", "-").lower()
    if flag != plain or not _FULL_NAME.match(flag):
        return f"is not a flag's name: write {plain!r} (no leading dashes, no underscores)"
    table = known_flags()
    one = canonical(flag)
    if one in _OURS:
        return f"is set elsewhere: use {_OURS[one]}"
    if one in _SPECULATION:
        return "is set by speculation: write it there"
    if flag in table:
        return None
    longer = sorted({entry.canonical for name, entry in table.items() if name.startswith(flag)})
    if longer:
        shown = ", ".join(longer[:4]) + (", ..." if len(longer) > 4 else "")
        return f"is an abbreviation (argparse would take it silently): write it in full: {shown}"
    close = difflib.get_close_matches(flag, table, n=1, cutoff=0.85)
    if close:
        return f"is not a flag of any known SGLang release: did you mean {close[0]}?"
    return None


def _value_problem(flag: str, value: FlagValue) -> str | None:
    if isinstance(value, str) and value.lower() in _WORDS_FOR_TRUTH:
        right = "true" if value.lower() in {"yes", "on", "y", "true"} else "false"
        return f"has the word {value!r}: write {right} (YAML 1.2 knows only true and false)"
    if flag in _WHOLE_NUMBERS and (isinstance(value, bool) or not isinstance(value, int)):
        return f"must be a whole number, not {value!r}"
    if flag == "mem-fraction-static" and (
        isinstance(value, (bool, str, tuple)) or not 0 < value < 1
    ):
        return f"must be a number between 0 and 1, not {value!r}"
    return None
