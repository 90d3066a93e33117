"""Asks the product about a case of kind ``server-info``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.effective import effective_settings, setting_differences, setting_name
from tasks.server_info import read_server_info, refusal
from tests.case_files import the_file

if TYPE_CHECKING:
    from pathlib import Path

ASKED = ("requested", "asked", "expected_settings", "settings")


def server_info(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    path = the_file(folder, "server_info.json")
    text = path.read_text(encoding="utf-8", errors="replace")
    info = read_server_info(text, given.get("status", 200))
    refused = refusal(info, expected_spec=given.get("expected_spec"))
    flat = {k.split("_", 1)[1]: v for k, v in given.items() if k.startswith("requested_")}
    named: list[dict[str, Any]] = [given[k] for k in ASKED if isinstance(given.get(k), dict)]
    asked = {**(named[0] if named else {}), **flat}
    settings = effective_settings(text)
    effective = {name: settings.get(setting_name(name)) for name in asked}
    return {
        **{f"effective_{name}": value for name, value in effective.items()},
        **info.model_dump(mode="json"),
        "effective_max_running_requests": info.max_running_requests,
        "effective": effective,
        "differs": [name for name in asked if setting_differences({name: asked[name]}, settings)],
        "warnings": [*info.warnings, *setting_differences(asked, settings)],
        "verdict": "refuse_run" if refused else "ok",
        "reason": refused,
    }
