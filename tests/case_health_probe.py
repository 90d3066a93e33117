"""Asks the product about a case of kind ``health-probe``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tasks.readiness import Answer, Facts, judge
from tests.case_files import the_file

if TYPE_CHECKING:
    from pathlib import Path

MODEL_KEYS = ("expected_model", "expected_model_path", "model_path", "model", "target")
STANDSTILL = re.compile(r"\b(?:no|none|nothing|silent|stopped)\b", re.IGNORECASE)


def health_probe(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    transcript = json.loads(the_file(folder, "probe.json").read_text(encoding="utf-8"))
    progress = given.get("log_progress")
    facts = Facts(
        alive=given.get("process_alive", given.get("own_process_alive")),
        log_ready=given.get("log_ready"),
        answers=tuple(
            Answer(
                t_s=step.get("t") or 0,
                path=step.get("url") or "",
                status=step.get("status"),
                body=step.get("body") or "",
                seconds=(step.get("ms") or 0) / 1000,
            )
            for step in transcript
        ),
        progress=bool(progress) and not STANDSTILL.search(str(progress)),
        running=_titles(given.get("own_processes")),
        expected=_titles(given.get("expected_processes")),
        model=next((given[key] for key in MODEL_KEYS if given.get(key)), None),
        silent_s=given.get("log_silent_s"),
        silent_limit_s=given.get("silent_limit_s"),
        waited_s=given.get("waited_s"),
        wait_limit_s=given.get("timeout_s"),
    )
    judged = judge(facts)
    return {"ready": judged.ready, "state": judged.state, "reason": judged.reason}


def _titles(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
