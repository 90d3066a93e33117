"""What is wrong with the flags in a file, for the engine that they are meant for.

argparse accepts any unambiguous abbreviation silently (measured for SGLang 0.5.9 and 0.5.23; vLLM
0.33's parser leaves it on too), so a sweep that says ``tp: 8`` would work today and break with the
next release: only full names are taken. Which there are stands in configs/engines.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from pydantic import AfterValidator

from configs.counterparts import counterpart
from configs.names import FlagValue, truth_of, whole
from configs.nodes import FILLED_IN
from configs.problems import Said
from configs.releases import EngineKind, has, known_flags, tabled
from configs.secret_names import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FULL_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_NGRAM: Final = "speculative-ngram-"  # of SGLang; vLLM has no flag that begins so


class _Rules(NamedTuple):
    """What one engine's flags must not say, and what they must be."""

    name: str
    ours: dict[str, str]
    """Set by the product itself; a second way to say the same thing is refused."""
    secrets: frozenset[str]
    speculation: frozenset[str]
    whole: frozenset[str]
    least: dict[str, int]
    """Where a number below 1 means something (SGLang takes -1 for "no chunks")."""
    shares: frozenset[str]
    """Numbers between 0 and 1."""


_RULES: Final[dict[EngineKind, _Rules]] = {
    "sglang": _Rules(
        "SGLang",
        {
            "model-path": "engine.model",
            "host": "the host file's listen",
            "port": "the host file's port",
            "api-key": "the host file's api_key_from",
            **FILLED_IN,
        },
        frozenset({"admin-api-key", "ssl-keyfile-password"}),
        frozenset(
            {
                "speculative-algorithm",
                "speculative-draft-model-path",
                "speculative-num-steps",
                "speculative-eagle-topk",
                "speculative-num-draft-tokens",
                "speculative-adaptive",
                "speculative-adaptive-config",
            }
        ),
        frozenset(
            {
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
        ),
        {"chunked-prefill-size": -1},
        frozenset({"mem-fraction-static"}),
    ),
    "vllm": _Rules(
        "vLLM",
        {
            "model": "the engine's model",
            "host": "the host file's listen",
            "port": "the host file's port",
            "uds": "the host file's listen and port",
            "api-key": "the host file's api_key_from",
            **FILLED_IN,
        },
        frozenset({"hf-token"}),
        frozenset({"speculative-config", "spec-method", "spec-model", "spec-tokens"}),
        frozenset(
            {
                "tensor-parallel-size",
                "pipeline-parallel-size",
                "data-parallel-size",
                "max-num-seqs",
                "max-num-batched-tokens",
                "max-model-len",
                "max-cudagraph-capture-size",
                "block-size",
                "stream-interval",
            }
        ),
        {},
        frozenset({"gpu-memory-utilization"}),
    ),
}


class FlagProblem(NamedTuple):
    """What is wrong with one flag, and what would be right."""

    flag: str
    message: str


def _numbers_as_numbers(flags: dict[str, FlagValue]) -> dict[str, FlagValue]:
    """Whole numbers written as ``"8"`` or ``8.0`` are one setting with ``8``, so one value."""
    return {
        flag: whole(value)
        if any(canonical(flag, engine) in rules.whole for engine, rules in _RULES.items())
        else value
        for flag, value in flags.items()
    }


Flags = Annotated[dict[str, FlagValue], AfterValidator(_numbers_as_numbers)]
"""Any flags of the engine, by full name without dashes: {tp-size: 8, trust-remote-code: true}."""


def flag_value(
    flags: Mapping[str, FlagValue], name: str, engine: EngineKind = "sglang"
) -> FlagValue | None:
    """The value of a flag under whatever name it is given; None where it is not."""
    return next((value for flag, value in flags.items() if canonical(flag, engine) == name), None)


def whole_flag(
    flags: Mapping[str, FlagValue], name: str, engine: EngineKind = "sglang"
) -> int | None:
    """The value of a flag that holds a whole number; None where it is not given."""
    value = flag_value(flags, name, engine)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def canonical(flag: str, engine: EngineKind = "sglang") -> str:
    """The one name that a flag and its aliases share."""
    known = known_flags(engine).get(flag)
    return known.canonical if known else flag


def in_version(flag: str, version: str, engine: EngineKind = "sglang") -> bool | None:
    """Whether this release has the flag; None for flags or releases beyond the table."""
    known = known_flags(engine).get(flag)
    if known is None or not tabled(engine, version):
        return None
    return has(known, version)


def flag_problems(
    flags: Mapping[str, FlagValue], engine: EngineKind = "sglang"
) -> Iterator[FlagProblem]:
    """Everything wrong with one mapping of flags of an engine, in its order."""
    seen: dict[str, str] = {}
    for flag, value in flags.items():
        name = _name_problem(flag, engine)
        if name is not None:
            yield FlagProblem(flag, name)
            continue
        one = canonical(flag, engine)
        if one in seen:
            yield FlagProblem(flag, f"is another name of {seen[one]}, which is given too: keep one")
        seen[one] = flag
        kind = _value_problem(one, value, _RULES[engine])
        if kind is not None:
            yield FlagProblem(flag, kind)


def unknown_flags(flags: Mapping[str, FlagValue], engine: EngineKind = "sglang") -> list[str]:
    """Flags that no release in the table has: allowed (a newer engine may), but said."""
    return [flag for flag in flags if flag not in known_flags(engine)]


def is_switch(flag: str, engine: EngineKind) -> bool:
    """Whether ``--no-FLAG`` turns it off, so that ``false`` says something."""
    known = known_flags(engine).get(flag)
    return known is not None and known.takes == "switch"


def title(engine: EngineKind) -> str:
    """The engine's name as its makers write it."""
    return _RULES[engine].name


def _name_problem(flag: str, engine: EngineKind) -> str | None:
    plain = flag.lstrip("-").replace("_", "-").lower()
    if not _FULL_NAME.fullmatch(plain):
        return "is not a flag's name: lower-case letters, digits and '-' are allowed"
    if flag != plain:
        return f"is not a flag's name: write {plain} (no leading dashes, no underscores)"
    table, rules = known_flags(engine), _RULES[engine]
    one = canonical(flag, engine)
    if one in rules.ours:
        return f"is set elsewhere: use {rules.ours[one]}"
    if one in rules.secrets or (flag not in table and looks_secret(flag.replace("-", "_"))):
        return "would put a secret into a file and into every list of processes: leave it out"
    if one in rules.speculation or one.startswith(_NGRAM):
        return "is set by speculation: write it there"
    if flag in table:
        return None
    turned = table.get(flag.removeprefix("no-"))
    if turned is not None and turned.takes == "switch":
        return f"turns {turned.name} off: write {turned.name}: false"
    longer = sorted({entry.canonical for name, entry in table.items() if name.startswith(flag)})
    if longer:
        shown = ", ".join(longer[:4]) + (", ..." if len(longer) > 4 else "")
        return f"is an abbreviation (argparse would take it silently): write it in full: {shown}"
    close = difflib.get_close_matches(flag, table, n=1, cutoff=0.85)
    if close:
        return f"is not a flag of any known {rules.name} release: did you mean {close[0]}?"
    return _others(flag, engine)


def _others(flag: str, engine: EngineKind) -> str | None:
    """What is said of a flag that another engine has, and this one not."""
    for other in _RULES:
        if other == engine or flag not in known_flags(other):
            continue
        ours = counterpart(canonical(flag, other), other, engine)
        advice = f"write {ours}" if ours else f"give it to {title(other)}'s arms alone"
        return f"is a flag of {title(other)}, not of {title(engine)}: {advice}"
    return None


def _value_problem(flag: str, value: FlagValue, rules: _Rules) -> str | None:
    if flag in rules.whole:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, not {_shown(value)}"
        least = rules.least.get(flag, 1)
        if value < least:
            return f"must be at least {least}, not {value}"
        return None
    if flag in rules.shares and (isinstance(value, (bool, str, tuple)) or not 0 < value < 1):
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


def raw_flag_problems(
    data: object, place: tuple[str, ...] = (), engines: tuple[EngineKind, ...] = ()
) -> Iterator[Said]:
    """What is wrong with the flags in plain data, wherever a mapping called flags stands.

    For a file that is not a valid sweep otherwise: what can be said of its flags is said at once.
    """
    if not isinstance(data, dict):
        return
    engines = engines or _raw_engines(data)
    for key, value in data.items():
        here = (*place, str(key))
        if key != "flags" or not isinstance(value, dict):
            yield from raw_flag_problems(value, here, engines)
            continue
        plain = {k: v for k, v in value.items() if isinstance(v, (bool, int, float, str))}
        first, *rest = ({p.flag: p for p in flag_problems(plain, kind)} for kind in engines)
        for flag, message in first.values():
            # Which arm runs on which engine is not known yet: said is what is wrong for all.
            if all(flag in other for other in rest):
                yield Said(".".join([*here, flag]), message)


def _raw_engines(data: dict[str, object]) -> tuple[EngineKind, ...]:
    """The engines that plain data speaks of."""
    more = data.get("engines")
    told = [data.get("engine"), *(more.values() if isinstance(more, dict) else ())]
    kinds = [engine.get("kind", "sglang") for engine in told if isinstance(engine, dict)]
    return tuple(kind for kind in _RULES if kind in kinds) or ("sglang",)
