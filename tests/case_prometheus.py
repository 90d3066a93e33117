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
    earlier = next((name for name in sorted(texts) if "before" in name), None)
    if earlier is None and len(texts) > 1:
        earlier = min(texts)
    (later, *_) = (text for name, text in sorted(texts.items()) if name != earlier)
    reading = read_metrics(
        later,
        given.get("framework", "sglang"),
        before=texts[earlier] if earlier else None,
        status=given.get("status", 200),
    )
    return reading.model_dump(mode="json")
