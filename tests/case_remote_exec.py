"""Asks the product about a case of kind ``remote-exec``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from infra.detached import GOOD_SHAPE, holds_streams
from tasks.contact import IF_KILLED, POLLS, Sight, conclude, silent
from tasks.log_lines import LogReader
from tests.case_files import the_file
from tests.interrupted import interrupted

COMMAND_S = 30.0  # what infra.shell.Shell.run gives a command


def remote_exec(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    seen = json.loads(the_file(folder, "transcript.json").read_text(encoding="utf-8"))
    if "chunks_hex" in seen:
        return _text(seen)
    if "events" in seen:
        return _cancelled(seen["events"])
    if "returned_after_s" in seen:
        return _shape(seen)
    if "no_bytes_for_s" in seen:
        found = silent(seen["no_bytes_for_s"], seen.get("limit_s", COMMAND_S))
        return {"action": found.action if found else "wait", "hints": list(POLLS)}
    shown = seen.get("after_reconnect") or (seen if "pid_alive" in seen else None)
    found = conclude(_sight(shown) if shown else None, seen.get("log_offset", 0))
    return found._asdict()


def _sight(shown: dict[str, Any]) -> Sight:
    written = shown.get("rc_file")
    return Sight(
        alive=shown["pid_alive"] and not str(shown.get("stat", "")).startswith("Z"),
        same_process=shown.get("lstart_same"),
        boot_same=shown.get("boot_id_same"),
        exit_code=int(str(written).split()[0]) if written not in (None, "") else None,
        log_size=shown.get("log_size"),
    )


def _text(seen: dict[str, Any]) -> dict[str, Any]:
    reader = LogReader()
    lines = [line for chunk in seen["chunks_hex"] for line in reader.feed(bytes.fromhex(chunk))]
    if seen.get("stream_ended", True):
        lines += reader.finish()
    text = "\n".join(line.text for line in lines)
    return {"text": text, "undecodable_bytes": reader.undecodable_bytes}


def _shape(seen: dict[str, Any]) -> dict[str, Any]:
    held = holds_streams(seen["command"])
    late = seen["returned_after_s"] is None or seen["returned_after_s"] > seen["limit_s"]
    reason = "streams_not_redirected" if held else "no_answer" if late else None
    return {"ok": reason is None, "reason": reason, "held": held, "good_shape": list(GOOD_SHAPE)}


def _cancelled(events: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        seen = interrupted(Path(place), events)
    return {
        "teardown_started": "reap" in seen.happened,
        "verified": list(seen.verified),
        "if_killed_before_done": IF_KILLED,
        "mlflow_status": seen.mlflow.status,
        "status": seen.record.status,
        "failure": seen.record.failure.failure_class if seen.record.failure else None,
    }
