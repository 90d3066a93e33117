"""Asks the drafter check about one recorded config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tasks.drafter import check_drafter
from tasks.drafter_verdict import EngineFacts, TargetFacts
from tasks.safetensors_header import Tensor

if TYPE_CHECKING:
    from pathlib import Path

ALLOW = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def drafter_config(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    shapes = read(folder / "tensors.json")
    config = folder / "config.json"
    verdict = check_drafter(
        config.read_bytes() if config.exists() else None,
        TargetFacts(
            hidden_size=given.get("target_hidden_size"),
            vocab_size=given.get("target_vocab_size"),
            layers=given.get("target_layers"),
            context=given.get("target_context"),
            architecture=given.get("target_architecture"),
        ),
        EngineFacts(
            framework=given.get("framework", "sglang"),
            version=given.get("version"),
            speculative_algorithm=given.get("speculative_algorithm"),
            context_length=given.get("context_length"),
            allow_longer_context=str((given.get("env") or {}).get(ALLOW, "0")).lower()
            in {"1", "true"},
        ),
        shapes and {name: Tensor("BF16", tuple(shape)) for name, shape in shapes.items()},
        read(folder / "d2t.json"),
    )
    return {
        **verdict.model_dump(),
        "hints": list(verdict.hints),
        "draft": verdict.problems[0].draft if verdict.problems else None,
        "target": verdict.problems[0].target if verdict.problems else None,
    }
