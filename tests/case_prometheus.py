"""Asks the product about a case of kind ``prometheus``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.prometheus import read_metrics

if TYPE_CHECKING:
    from pathlib import Path


def prometheus(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    texts = {
        path.stem: path.read_text(encoding="utf-8", errors="replace")
        for path in folder.glob("*.txt")
    }
    later = texts["after"] if "after" in texts else texts["metrics"]
    reading = read_metrics(
        later,
        given.get("framework", "sglang"),
        before=texts.get("before"),
        status=given.get("status", 200),
    )
    return reading.model_dump(mode="json")
