"""What MLflow takes: names, lengths and numbers cut to fit, and what was cut is said.

Limits measured on MLflow 3.17: param values 6,000 characters (500 and 250 in older servers, where
the whole batch is refused), tag values 8,000, keys 250; an infinity becomes 1.8e308 and NaN is
stored as 0 with a flag, so that it matches ``accept_len < 1`` (mlflow#25640, #22826).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARAM_LIMIT = 6000
TAG_LIMIT = 8000
KEY_LIMIT = 250
_NOT_ALLOWED = re.compile(r"[^\w\-./ :]", re.ASCII)


class Fitted(NamedTuple):
    """What goes to MLflow, and what did not fit."""

    params: dict[str, str]
    metrics: list[tuple[str, float, int]]
    """(key, value, step)."""
    tags: dict[str, str]
    artifacts: dict[str, str]
    """File name -> full text of what was cut."""
    warnings: list[str]


def fit(
    params: Mapping[str, str],
    metrics: Iterable[tuple[str, float | None, int]],
    tags: Mapping[str, str],
    *,
    param_limit: int = PARAM_LIMIT,
) -> Fitted:
    """Cuts to fit; unknown figures (None) are left out, non-finite ones are named in a tag."""
    fitted = Fitted({}, [], {}, {}, [])
    for key, value in params.items():
        if len(value) > param_limit:
            file = f"{_key(key)}.txt"
            fitted.artifacts[file] = value
            fitted.warnings.append(f"{key} cut in params, full text in artifact {file}")
        fitted.params[_key(key)] = value[:param_limit]
    strange: list[str] = []
    for key, figure, step in metrics:
        if figure is None:
            continue
        if math.isfinite(figure):
            fitted.metrics.append((_key(key), float(figure), step))
        elif key not in strange:
            strange.append(key)
    for key, text in tags.items():
        fitted.tags[_key(key)] = text[:TAG_LIMIT]
    if strange:
        fitted.tags["not_finite"] = ",".join(sorted(strange))[:TAG_LIMIT]
        fitted.warnings.append(f"not finite, not logged: {', '.join(sorted(strange))}")
    return fitted


def merge_params(known: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """What may still be logged: params are immutable (mlflow#6183).

    A parameter that stands with another value goes under ``effective.<name>``; one that stands
    as wanted is left out.
    """
    new: dict[str, str] = {}
    for key, value in wanted.items():
        if key not in known:
            new[key] = value
        elif known[key] != value and known.get(f"effective.{key}") != value:
            new[f"effective.{key}"] = value
    return new


def _key(key: str) -> str:
    return _NOT_ALLOWED.sub("_", key)[:KEY_LIMIT]
