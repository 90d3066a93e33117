"""The lock on a host: one controller at a time, taken over when its holder is not heard from."""

from __future__ import annotations

import os
import time
from typing import Any, Optional

from infra.agent import folders, processes
from infra.agent.refusal import Refusal


def claim(asked: dict[str, Any]) -> dict[str, Any]:
    """Takes or renews the host lock, or refuses ``claimed`` and says who has it."""
    root = folders.own_folder(asked["root"])
    return take(root, asked["holder"], float(asked["lease_s"]), asked.get("note"))


def take(root: str, holder: str, lease_s: float, note: Optional[str]) -> dict[str, Any]:
    """Takes the lock of a root for one holder; the note of a renewal is kept if none is given."""
    lock = folders.lock(os.path.join(root, "claim.lock"), wait=True)
    try:
        return _take(os.path.join(root, "claim.json"), holder, lease_s, note)
    finally:
        if lock is not None:
            os.close(lock)


def _take(path: str, holder: str, lease_s: float, note: Optional[str]) -> dict[str, Any]:
    now, boot = time.monotonic(), processes.boot_id()
    old = folders.read_object(path)
    over = _over(old, now, boot)
    if old is not None and over is None and old["holder"] != holder:
        raise Refusal("claimed", f"the host is held by {old['holder']}", **_public(old, now))
    renewed = old is not None and over is None
    value = {
        "holder": holder,
        "note": old.get("note") if renewed and old is not None and note is None else note,
        "boot_id": boot,
        "taken_monotonic": old["taken_monotonic"] if renewed and old is not None else now,
        "deadline_monotonic": now + lease_s,
    }
    folders.write_json(path, value, durable=not renewed)
    answer = {"holder": holder, "renewed": renewed, "left_s": lease_s, "took_over": None}
    if old is not None and over is not None and old.get("holder") != holder:
        answer["took_over"] = {"reason": over, **_public(old, now)}
    return answer


def _over(old: Optional[dict[str, Any]], now: float, boot: str) -> Optional[str]:
    """Why an old claim no longer counts; None while it does."""
    if old is None:
        return None
    if old.get("boot_id") != boot:
        return "rebooted"
    return "expired" if now > old["deadline_monotonic"] else None


def _public(old: dict[str, Any], now: float) -> dict[str, Any]:
    """What others may know of a claim; ages only where both times are of this boot."""
    same_boot = old.get("boot_id") == processes.boot_id()
    return {
        "holder": old.get("holder"),
        "note": old.get("note"),
        "age_s": now - old["taken_monotonic"] if same_boot else None,
        "left_s": max(0.0, old["deadline_monotonic"] - now) if same_boot else 0.0,
    }


def held(asked: dict[str, Any]) -> dict[str, Any]:
    """Who holds the host, without taking it: for those who only look."""
    old = folders.read_object(os.path.join(asked["root"], "claim.json"))
    now = time.monotonic()
    over = _over(old, now, processes.boot_id())
    if old is None or over is not None:
        return {"held": False}
    return {"held": True, **_public(old, now)}


def release(asked: dict[str, Any]) -> dict[str, Any]:
    """Gives the host lock back; says whether it was ours. Safe to repeat."""
    root = asked["root"]
    if not os.path.isdir(root):
        return {"released": False}
    folders.existing_folder(root)
    lock = folders.lock(os.path.join(root, "claim.lock"), wait=True)
    try:
        path = os.path.join(root, "claim.json")
        old = folders.read_object(path)
        ours = old is not None and old.get("holder") == asked["holder"]
        return {"released": folders.forget(path) if ours else False}
    finally:
        if lock is not None:
            os.close(lock)
