"""Asks the product about a case of kind ``server-info``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.server_info import read_server_info, refusal

if TYPE_CHECKING:
    from pathlib import Path


def server_info(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    text = (folder / "server_info.json").read_text(encoding="utf-8", errors="replace")
    info = read_server_info(text, given.get("status", 200))
    refused = refusal(info, expected_spec=given.get("expected_spec"))
    return {
        **info.model_dump(mode="json"),
        "effective_max_running_requests": info.max_running_requests,
        "verdict": "refuse_run" if refused else "ok",
        "reason": refused,
    }
