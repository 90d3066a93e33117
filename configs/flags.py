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
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import AfterValidator

from configs.names import FlagValue, truth_of, whole
from configs.problems import Said
from configs.secret_names import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TABLE = Path(__file__).parent / "engines" / "sglang-flags.tsv"
_FULL_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")

# Set by the product itself; a second way to say the same thing is refused.
_OURS = {
    "model-path": "engine.model",
    "host": "the host file's listen",
    "port": "the host file's port",
    "api-key": "the host file's api_key_from",
}
_SECRETS = {"admin-api-key", "ssl-keyfile-password"}
_SPECULATION = {
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
    "speculative-adaptive",
    "speculative-adaptive-config",
}
_NGRAM = "speculative-ngram-"
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
# SGLang takes -1 for "no chunks" here.
_LEAST = {"chunked-prefill-size": -1}


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


def _numbers_as_numbers(flags: dict[str, FlagValue]) -> dict[str, FlagValue]:
    """Whole numbers written as ``"8"`` or ``8.0`` are one setting with ``8``, so one value."""
    return {
        flag: whole(value) if canonical(flag) in _WHOLE_NUMBERS else value
        for flag, value in flags.items()
    }


Flags = Annotated[dict[str, FlagValue], AfterValidator(_numbers_as_numbers)]
"""Any flags of the engine, by full name without dashes: {tp-size: 8, trust-remote-code: true}."""


def flag_value(flags: Mapping[str, FlagValue], name: str) -> FlagValue | None:
    """The value of a flag under whatever name it is given; None where it is not."""
    return next((value for flag, value in flags.items() if canonical(flag) == name), None)


def whole_flag(flags: Mapping[str, FlagValue], name: str) -> int | None:
    """The value of a flag that holds a whole number; None where it is not given."""
    value = flag_value(flags, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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
    if not _FULL_NAME.fullmatch(plain):
        return "is not a flag's name: lower-case letters, digits and '-' are allowed"
    if flag != plain:
        return f"is not a flag's name: write {plain} (no leading dashes, no underscores)"
    table = known_flags()
    one = canonical(flag)
    if one in _OURS:
        return f"is set elsewhere: use {_OURS[one]}"
    if one in _SECRETS or (flag not in table and looks_secret(flag.replace("-", "_"))):
        return "would put a secret into a file and into every list of processes: leave it out"
    if one in _SPECULATION or one.startswith(_NGRAM):
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
    if flag in _WHOLE_NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, not {_shown(value)}"
        if value < _LEAST.get(flag, 1):
            return f"must be at least {_LEAST.get(flag, 1)}, not {value}"
        return None
    if flag == "mem-fraction-static" and (
        isinstance(value, (bool, str, tuple)) or not 0 < value < 1
    ):
        return f"must be a number between 0 and 1, not {_shown(value)}"
    truth = truth_of(value)
    if truth is not None:
        return f"has the word {value!r}: write {str(truth).lower()} (YAML 1.2 knows only these two)"
    if isinstance(value, tuple):
        if not value:
            return "is an empty list: name an element, or leave the flag out"
        dashed = [text for text in value if isinstance(text, str) and text.startswith("-")]
        if dashed:
            return f"has the element {dashed[0]!r}: argparse would take it for another flag"
    return None


def _shown(value: FlagValue) -> str:
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if truth_of(value) is not None:
        return f"{value!r} (a boolean to many readers of YAML)"
    return repr(list(value) if isinstance(value, tuple) else value)


def raw_flag_problems(data: object, place: tuple[str, ...] = ()) -> Iterator[Said]:
    """What is wrong with the flags in plain data, wherever a mapping called flags stands.

    For a file that is not a valid sweep otherwise: what can be said of its flags is said at once.
    """
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        here = (*place, str(key))
        if key != "flags" or not isinstance(value, dict):
            yield from raw_flag_problems(value, here)
            continue
        plain = {k: v for k, v in value.items() if isinstance(v, (bool, int, float, str))}
        for flag, message in flag_problems(plain):
            yield Said(".".join([*here, flag]), message)
