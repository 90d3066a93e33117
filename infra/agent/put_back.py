"""Puts changed files back, those that our folder's list names."""

from __future__ import annotations

from typing import Any

from infra.agent import files, folders, ledger
from infra.agent.refusal import Refusal


def put_back(listed: str) -> list[dict[str, Any]]:
    """Puts back every file of the list and removes its bytecode; safe to repeat.

    Returns:
        For each file ``path``, ``restored``, and ``error`` and ``message`` where it was refused.
        A file that others changed since (an upgrade of the engine) is theirs and leaves the list;
        one that could not be written stays on it.
    """
    told = [_put_back(path) for path in ledger.paths(listed)]
    if told:
        left = [row["path"] for row in told if row["error"] not in (None, "changed")]
        folders.write_json(listed, {"paths": left})
    return told


def _put_back(path: str) -> dict[str, Any]:
    answer = {"path": path, "restored": False, "error": None, "message": None}
    try:
        restored = files.file({"op": "restore", "path": path})["restored"]
        files.file({"op": "clear_pycache", "path": path})
    except Refusal as refusal:
        said = refusal.answer()
        return {**answer, "error": said["error"], "message": said["message"]}
    return {**answer, "restored": restored}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The command: puts back what the list names."""
    return {"files": put_back(asked["ledger"])}
