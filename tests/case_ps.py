"""Asks the product about a case of kind ``ps``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.process_list import PS_COLUMNS, ps_columns, read_ps
from tasks.processes import Leader, split_by_leader, teardown_step
from tasks.smi_csv import read_apps
from tests.case_files import the_file

if TYPE_CHECKING:
    from pathlib import Path


def ps(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    columns = ps_columns(str(given.get("command", ""))) or PS_COLUMNS
    processes = read_ps(
        the_file(folder, "ps.txt").read_text(encoding="utf-8", errors="replace"), columns
    )
    apps = folder / "apps.csv"
    gpu_pids = {a.pid for a in read_apps(apps.read_text(encoding="utf-8"))} if apps.exists() else ()
    written = given.get("pidfile") or {}
    leader = Leader(
        pid=written.get("pid", -1),
        start=written.get("lstart"),
        pgid=written.get("pgid"),
        sid=written.get("sid"),
    )
    split = split_by_leader(processes, leader, user=given.get("user"), uid=given.get("uid"))
    step = teardown_step(
        split,
        leader,
        gpu_pids=gpu_pids,
        gpu_free=given.get("gpu_free"),
        term_s_ago=given.get("sigterm_sent_s_ago"),
        kill_s_ago=given.get("sigkill_sent_s_ago"),
    )
    return {
        "own": [p.pid for p in split.own],
        "zombies": [p.pid for p in split.zombies],
        "foreign": [p.pid for p in split.foreign],
        "action": step.action,
        "reason": step.reason,
        "released": step.released,
        "foreign_gpu_pids": list(step.foreign_gpu_pids),
    }
