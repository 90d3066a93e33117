"""Asks the product about a case of kind ``nvidia-smi``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.gpus import survey_gpus
from tasks.smi_csv import COMPUTE_APPS, queried_fields

if TYPE_CHECKING:
    from pathlib import Path

#: What the recorded queries ask for where a case does not say.
CASE_FIELDS = ("index", "uuid", "memory.used", "memory.total", "utilization.gpu")


def nvidia_smi(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    texts = {
        path.name: path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(folder.iterdir())
        if path.suffix in {".csv", ".txt"}
    }
    commands = [str(command) for command in given.get("commands", [])]
    asked = [queried_fields(command) for command in commands]
    gpus = [f for c, f in zip(commands, asked, strict=True) if f and "--query-gpu" in c]
    apps = [f for c, f in zip(commands, asked, strict=True) if f and "--query-compute" in c]
    survey = survey_gpus(
        "\n".join(text for name, text in texts.items() if name != "apps.csv"),
        texts.get("apps.csv", ""),
        gpu_columns=gpus[0] if gpus else CASE_FIELDS,
        app_columns=apps[0] if apps else COMPUTE_APPS,
        exit_code=given.get("exit_code") or 0,
        wanted=given.get("expected_gpus") or given.get("wanted_gpus") or given.get("gpus"),
        free_below_mib=given.get("free_below_mib"),
    )
    return survey.model_dump(mode="json")
