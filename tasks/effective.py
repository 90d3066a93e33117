"""The settings that a server really runs with, flat, and where they differ from the asked ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeGuard

from tasks.foreign_json import NotJsonError, count, number, read_json, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

Setting = str | int | float | bool | None

#: Spellings of one setting: the flag's own name, argparse's destination in 0.5.9, short names.
_SAME = {
    "tensor_parallel_size": "tp_size",
    "data_parallel_size": "dp_size",
    "pipeline_parallel_size": "pp_size",
    "expert_parallel_size": "ep_size",
    "speculative_draft_model": "speculative_draft_model_path",
    "model": "model_path",
    "draft_model_path": "speculative_draft_model_path",
    "num_steps": "speculative_num_steps",
    "topk": "speculative_eagle_topk",
    "eagle_topk": "speculative_eagle_topk",
    "num_draft_tokens": "speculative_num_draft_tokens",
}

#: A word that SGLang replaces by what it means, before it reports it (speculative_hook.py).
RESOLVED = {"nextn": ("eagle", "frozen_kv_mtp"), "eagle": ("frozen_kv_mtp",)}


def effective_settings(text: str) -> dict[str, Setting]:
    """Every plain setting in a ``/server_info`` answer, of a decode node behind a router.

    The server argument ``max_running_requests`` is replaced by the limit in effect, added over
    data-parallel ranks. Lists and nested objects are left out. An answer that is none gives
    nothing.
    """
    try:
        body = read_json(text)
    except NotJsonError:
        return {}
    if not isinstance(body, dict):
        return {}
    node = next(iter(rows(body.get("decode") or [])), body)
    states = rows(node.get("internal_states") or [])
    settings: dict[str, Setting] = {
        setting_name(str(name)): value
        for name, value in node.items()
        if value is None or isinstance(value, str | int) or _is_figure(value)
    }
    limits = [count(state.get("effective_max_running_requests_per_dp")) for state in states]
    known = [limit for limit in limits if limit is not None]
    if known and len(known) == len(limits):
        settings["max_running_requests"] = sum(known)
    return settings


def _is_figure(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and math.isfinite(value)


def setting_name(flag: str) -> str:
    """The name of a setting in ``/server_info``: ``--tp-size`` and ``tensor_parallel_size`` alike."""
    name = flag.lstrip("-").replace("-", "_")
    return _SAME.get(name, name)


def setting_differences(
    asked: Mapping[str, Setting], effective: Mapping[str, Setting]
) -> tuple[str, ...]:
    """One sentence for each setting that is not as it was asked; what was not asked is not looked at.

    Servers adjust in silence: draft tokens to steps + 1 with one branch, running requests to 48.
    """
    found = []
    for flag, want in asked.items():
        name = setting_name(flag)
        if name not in effective:
            found.append(f"{name}: asked {want}, the server does not say what is in effect")
        elif not _alike(want, effective[name]):
            found.append(f"{name}: asked {want}, in effect {effective[name]}")
    return tuple(found)


def _alike(want: Setting, have: Setting) -> bool:
    if isinstance(want, bool) or isinstance(have, bool) or want is None or have is None:
        return want is have
    one, other = number(want), number(have)
    if one is not None and other is not None:
        return one == other
    if str(have).lower() in RESOLVED.get(str(want).lower(), ()):
        return True
    return str(want).rstrip("/") == str(have).rstrip("/")
