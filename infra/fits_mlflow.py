"""What MLflow takes: names, lengths and numbers cut to fit, and what was cut is said.

Limits measured on MLflow 3.17: param values 6,000 characters (500 and 250 in older servers, where
the whole batch is refused), tag values 8,000, keys 250; an infinity becomes 1.8e308 and NaN is
stored as 0 with a flag, so that it matches ``accept_len < 1`` (mlflow#25640, #22826). Names hold
letters, digits and ``_ - . space : /``, and must not be another name as a path (``a//b``, ``../a``).
"""

from __future__ import annotations

import math
import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARAM_LIMIT = 6000
TAG_LIMIT = 8000
KEY_LIMIT = 250
_NOT_ALLOWED = re.compile(r"[^\w\-./ :]", re.ASCII)
# What servers of several ages say when a value is too long (mlflow#1976, #9709, #10512).
_TOLD_LIMIT = re.compile(r"(?:length limit of|maximum length of) (\d{1,9})")


class Fitted(NamedTuple):
    """What goes to MLflow, and what did not fit."""

    params: dict[str, str]
    metrics: list[tuple[str, float, int]]
    """(key, value, step)."""
    tags: dict[str, str]
    artifacts: dict[str, str]
    """File name -> full text of what was cut."""
    cut: dict[str, int]
    """Key -> of how many characters at most its value was kept."""
    renamed: dict[str, str]
    """Name as asked -> name in MLflow, where they differ."""
    warnings: list[str]


def fit(
    params: Mapping[str, str],
    metrics: Iterable[tuple[str, float | None, int]],
    tags: Mapping[str, str],
    *,
    param_limit: int = PARAM_LIMIT,
    tag_limit: int = TAG_LIMIT,
) -> Fitted:
    """Cuts to fit; unknown figures (None) are left out, non-finite ones are named in a tag."""
    fitted = Fitted({}, [], {}, {}, {}, {}, [])
    _fit_texts(fitted, fitted.params, params, param_limit, "params")
    _fit_texts(fitted, fitted.tags, tags, tag_limit, "tags")
    strange = _fit_metrics(fitted, metrics)
    if strange:
        fitted.tags["not_finite"] = ",".join(strange)[:tag_limit]
        fitted.warnings.append(f"not finite, not logged: {', '.join(strange)}")
    for asked, key in fitted.renamed.items():
        fitted.warnings.append(f"{asked} is not a name that MLflow takes: logged as {key}")
    return fitted


def merge_params(known: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """What may still be logged: params are immutable (mlflow#6183).

    A parameter that stands with another value goes under ``effective.<name>`` (then
    ``effective.<name>.2`` and so on); one that stands as wanted is left out.
    """
    new: dict[str, str] = {}
    for key, value in wanted.items():
        name, number = key, 1
        while known.get(name, new.get(name, value)) != value:
            name = f"effective.{key}" if number == 1 else f"effective.{key}.{number}"
            number += 1
        if name not in known:
            new[name] = value
    return new


def told_limit(message: str) -> int | None:
    """The length that a server says it takes at most; None if it says nothing of lengths."""
    found = _TOLD_LIMIT.search(message)
    return int(found[1]) if found else None


def _fit_texts(
    fitted: Fitted, kept: dict[str, str], texts: Mapping[str, str], limit: int, where: str
) -> None:
    for asked, value in texts.items():
        key = _name(fitted, asked, kept)
        kept[key] = value[:limit]
        if len(value) > limit:
            file = f"{key.replace('/', '_')}.txt"
            fitted.artifacts[file] = value
            fitted.cut[key] = limit
            fitted.warnings.append(f"{asked} cut in {where}, full text in artifact {file}")


def _fit_metrics(fitted: Fitted, metrics: Iterable[tuple[str, float | None, int]]) -> list[str]:
    names: dict[str, str] = {}
    strange: dict[str, None] = {}
    for asked, figure, step in metrics:
        if figure is None:
            continue
        if not math.isfinite(figure):
            strange[asked] = None
            continue
        if asked not in names:
            names[asked] = _name(fitted, asked, set(names.values()))
        fitted.metrics.append((names[asked], float(figure), step))
    return sorted(strange)


def _name(fitted: Fitted, asked: str, taken: Iterable[str]) -> str:
    """A name that MLflow takes and that no other asked name has got."""
    plain = name = _key(asked)
    number = 2
    while name in taken:
        name = f"{plain[: KEY_LIMIT - 4]}_{number}"
        number += 1
    if name != asked:
        fitted.renamed[asked] = name
    return name


def _key(key: str) -> str:
    allowed = _NOT_ALLOWED.sub("_", key)[:KEY_LIMIT]
    path = posixpath.normpath(allowed).lstrip("/")
    return "_" if path in {"", "."} else path.replace("..", "__") if path.startswith("..") else path
