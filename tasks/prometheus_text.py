"""Reads the Prometheus text format, with all that programs put into it, and never fails on a line."""

from __future__ import annotations

import math
from typing import NamedTuple


class Sample(NamedTuple):
    """One line: a name (with ``:`` read as ``_``), its labels, a value that may be NaN."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    def label(self, name: str) -> str | None:
        """The value of one label."""
        return dict(self.labels).get(name)


class Exposition(NamedTuple):
    """A whole answer of ``/metrics``."""

    samples: tuple[Sample, ...]
    unreadable_lines: int

    def named(self, *names: str) -> tuple[Sample, ...]:
        """The samples of the first of these names that has any."""
        for name in names:
            found = tuple(s for s in self.samples if s.name == name.replace(":", "_"))
            if found:
                return found
        return ()


def read_prometheus(text: str) -> Exposition:
    """Read samples; timestamps and exemplars are passed over, lines that are none are counted.

    Names are compared with ``_`` for ``:``, because collectors on the way rewrite
    ``sglang:gen_throughput`` to ``sglang_gen_throughput``.
    """
    samples, unreadable = [], 0
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        sample = _sample(stripped)
        if sample is None:
            unreadable += 1
        else:
            samples.append(sample)
    return Exposition(tuple(samples), unreadable)


def _sample(line: str) -> Sample | None:
    end = 0
    while end < len(line) and (line[end].isalnum() or line[end] in "_:"):
        end += 1
    name, rest = line[:end], line[end:].lstrip()
    if not name or name[0].isdigit():
        return None
    labels: list[tuple[str, str]] = []
    if rest.startswith("{"):
        read = _labels(rest)
        if read is None:
            return None
        labels, rest = read
    words = rest.split()
    value = _value(words[0]) if words else None
    if value is None:
        return None
    return Sample(name.replace(":", "_"), tuple(sorted(labels)), value)


def _labels(text: str) -> tuple[list[tuple[str, str]], str] | None:
    """The labels in braces and what follows them. Values are quoted, with escapes."""
    labels: list[tuple[str, str]] = []
    at = 1
    while at < len(text):
        while at < len(text) and text[at] in ", \t":
            at += 1
        if text[at : at + 1] == "}":
            return labels, text[at + 1 :]
        equals = text.find("=", at)
        quote = equals + 1
        if equals < 0 or text[quote : quote + 1] != '"':
            return None
        value, end = _quoted(text, quote + 1)
        if end < 0:
            return None
        labels.append((text[at:equals].strip(), value))
        at = end
    return None


def _quoted(text: str, at: int) -> tuple[str, int]:
    value: list[str] = []
    while at < len(text):
        char = text[at]
        if char == '"':
            return "".join(value), at + 1
        if char == "\\" and at + 1 < len(text):
            at += 1
            char = "\n" if text[at] == "n" else text[at]
        value.append(char)
        at += 1
    return "", -1


def _value(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return math.nan if math.isnan(value) else value
