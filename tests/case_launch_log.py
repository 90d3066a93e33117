"""Cases of the kind launch-log: what a start log says, against what is expected."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tasks.start_facts import STAGE_LIMIT_S, silence_s, stalled
from tasks.start_log import StartLog
from tests.case_files import the_file

if TYPE_CHECKING:
    from pathlib import Path


def launch_log(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    log = StartLog(given.get("framework"))
    log.feed(the_file(folder, "server.log").read_bytes())
    ended = given.get("processes_alive") is False or "exit_code" in given
    facts = log.finish(ended=ended, exit_code=given.get("exit_code"))
    now = datetime.fromisoformat(given["now"]) if "now" in given else None
    silent = None if now is None else silence_s(facts, now)
    failure = facts.failure
    if silent is not None:
        failure = failure or stalled(facts, silent, given.get("stage_limit_s", STAGE_LIMIT_S))
    found = facts.model_dump(mode="json") | {"silent_s": silent}
    if failure is not None:
        found |= {k: v for k, v in failure.model_dump(mode="json").items() if v is not None}
    return found | {"failure": None if failure is None else failure.failure}
