"""Asks the patching room about one recorded model file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.patch import Delegate, Patch
from tasks.patching import apply_patch

if TYPE_CHECKING:
    from pathlib import Path

METHODS = ("set_eagle3_layers_to_capture", "get_embed_and_head", "set_embed_and_head")
PARAMETERS = {
    "set_eagle3_layers_to_capture": ("layer_ids=None",),
    "set_embed_and_head": ("embed", "head"),
}


def model_source(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    path = next(iter(sorted(folder.glob("*.py"))), None)
    patch = Patch(
        name="case",
        module=f"srt/models/{path.name if path else 'kimi_k25.py'}",
        class_name=given.get("class", "KimiK25ForConditionalGeneration"),
        methods=tuple(
            Delegate(name=name, to="language_model", parameters=PARAMETERS.get(name, ()))
            for name in given.get("methods", METHODS)
        ),
        after="load_weights",
        versions=">=0.5.9,<0.5.10",
        below="Releases before 0.5.9 do not serve this model.",
        upstream="https://github.com/sgl-project/sglang/pull/19689",
    )
    source = path.read_bytes() if path else None
    result = apply_patch(source, patch, given.get("version"))
    return {
        "action": "none" if result.action == "complete_already" else result.action,
        "reason": result.reason,
        "missing": list(result.missing),
        "runtime_missing": result.runtime_missing,
        "inserted": list(result.inserted),
        "insert_after": result.insert_after,
        "indent": result.indent,
        "newline": result.newline,
        "compiles_after": result.proven,
        "other_bytes_unchanged": result.proven,
        "second_run_is_noop": apply_patch(result.new_source, patch).action == "complete_already",
        "final_newline_before": result.final_newline_before,
        "other_class_unchanged": next(iter(result.other_models_unchanged), None),
        "warnings": list(result.warnings),
        "hints": [result.message],
    }
