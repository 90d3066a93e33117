"""What released engines are known to have: flags, environment, endpoints, words of their logs.

The tables under configs/engines are read out of wheels (``make engine-tables``): SGLang 0.5.9 to
0.5.23, vLLM 0.18.1, 0.26.0 and 0.33.0. Each row says in which release a name was first and last
seen. What lies beyond a table is unknown, and is asked of the engine itself (tasks/known_flags).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

EngineKind = Literal["sglang", "vllm"]
Takes = Literal["value", "switch", "flag"]
NameKind = Literal["env", "endpoint", "field", "counter", "log", "module", "client"]

_ENGINES = Path(__file__).parent / "engines"
ENV_PREFIXES: dict[EngineKind, tuple[str, ...]] = {"sglang": ("SGLANG_", "SGL_"), "vllm": ()}
"""Beginnings of variables that an engine reads under these names alone, as far as tables hold."""


class KnownFlag(NamedTuple):
    """One option name of an engine."""

    name: str
    canonical: str
    first: str
    last: str
    takes: Takes
    """``switch``: ``--no-NAME`` turns it off; ``flag``: it can only be given."""


class KnownName(NamedTuple):
    """One name beside flags: a variable, an endpoint, a field, a counter, words of the log.

    ``module`` is what ``python -m`` runs as the engine's own load generator, ``client`` an option
    of that.
    """

    kind: NameKind
    name: str
    first: str
    last: str


@cache
def known_flags(engine: EngineKind = "sglang") -> dict[str, KnownFlag]:
    """An engine's table of flags, by option name without dashes."""
    rows = _rows(f"{engine}-flags.tsv")
    return {
        name: KnownFlag(name, of, first, last, _takes(takes))
        for name, of, first, last, takes in rows
    }


@cache
def known_names() -> dict[tuple[str, str], KnownName]:
    """SGLang's other names, by kind and name."""
    found = (KnownName(_name_kind(row[0]), *row[1:]) for row in _rows("sglang-versions.tsv"))
    return {(known.kind, known.name): known for known in found}


def release(version: str) -> tuple[int, ...]:
    """A version as numbers for comparing: 0.5.10.post1 -> (0, 5, 10, 1)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


@cache
def newest(engine: EngineKind) -> str:
    """The newest release in an engine's table of flags."""
    return max((known.last for known in known_flags(engine).values()), key=release)


@cache
def oldest(engine: EngineKind) -> str:
    """The oldest release in an engine's table of flags."""
    return min((known.first for known in known_flags(engine).values()), key=release)


@cache
def releases(engine: EngineKind) -> tuple[str, ...]:
    """The releases that an engine's table of flags was read from, the oldest first."""
    head = (_ENGINES / f"{engine}-flags.tsv").read_text(encoding="utf-8").partition("\n")[0]
    found = re.search(r"\(of ([^;]+);", head)
    return tuple(found[1].split(", ")) if found else ()


def tabled(engine: EngineKind, version: str) -> bool:
    """Whether the engine's table was read from exactly this release."""
    return version in releases(engine)


def has(known: KnownFlag | KnownName, version: str) -> bool:
    """Whether a release that the table was read from has what a row is about."""
    return release(known.first) <= release(version) <= release(known.last)


def client_module(version: str | None) -> str:
    """What ``python -m`` runs as SGLang's load generator in a release.

    ``sglang.bench_serving`` in all of the table, from 0.5.15 on as a shim that warns; the newest
    name for a release beyond the table, the oldest where no release is known.
    """
    modules = [known for (kind, _), known in known_names().items() if kind == "module"]
    modules.sort(key=lambda known: release(known.first))
    there = [known.name for known in modules if version is not None and reaches(known, version)]
    return there[-1] if there else modules[0].name


def client_takes(option: str, version: str | None) -> bool:
    """Whether SGLang's load generator has an option (without dashes) in a release.

    In all releases of the table or in none: whatever the release. Where it came later and no
    release is known, it is not given.
    """
    known = known_names().get(("client", option))
    if known is None:
        return False
    return reaches(known, oldest("sglang") if version is None else version)


def reaches(known: KnownName, version: str) -> bool:
    """Whether a release has what a row is about, or should: what the newest has stays."""
    at = release(version)
    ends = known.last != newest("sglang") and release(known.last) < at
    return release(known.first) <= at and not ends


def knows_variable(name: str, version: str | None = None) -> bool | None:
    """Whether SGLang reads a variable, in this release or in any; None: not one of its own.

    A release beyond the table is unknown, so None too.
    """
    if not name.startswith(ENV_PREFIXES["sglang"]):
        return None
    known = known_names().get(("env", name))
    if version is None:
        return known is not None
    if not tabled("sglang", version):
        return None
    return known is not None and has(known, version)


def _rows(file: str) -> list[list[str]]:
    lines = (_ENGINES / file).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def _takes(word: str) -> Takes:
    match word:
        case "value" | "switch" | "flag":
            return word
        case _:
            raise ValueError(f"configs/engines: {word!r} is not what a flag takes")


def _name_kind(word: str) -> NameKind:
    match word:
        case "env" | "endpoint" | "field" | "counter" | "log" | "module" | "client":
            return word
        case _:
            raise ValueError(f"configs/engines: {word!r} is not a kind of name")
