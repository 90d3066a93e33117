"""The words of the morning message."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_GOOD = {"Completed", "Partial"}
_ITS_WORDS = {
    "Late": "it has not begun: is the worker up?",
    "Scheduled": "it has not begun: is the worker up?",
    "Pending": "a worker has taken it, and it has not begun",
    "AwaitingConcurrencySlot": "it waits for the night before it to end",
    "Running": "it is still running",
    "Retrying": "it was cut off, and is running again",
    "Rerunning": "it was cut off, and is running again",
}


class Night(NamedTuple):
    """One run of the night."""

    name: str
    """Of its sweep."""
    planned: datetime
    state: str
    """As Prefect names it."""
    message: str
    """For a run that came to its end: the verdict sentence and the counts."""
    links: Mapping[str, str]
    """What is linked -> where."""


def message(nights: Sequence[Night], unfit: str | None, *, due: bool) -> tuple[str, str] | None:
    """Subject and text; None if there is nothing to tell.

    Args:
        nights: The runs of the night, by time.
        unfit: What the last look over the hosts said, if one was not fit.
        due: Whether a schedule of the night is switched on.
    """
    if not nights and not due and unfit is None:
        return None
    parts = ["\n".join(_lines(night)) for night in nights]
    if not nights and due:
        parts.append("No night was begun although one was due: is the worker up?")
    if unfit is not None:
        parts.append(f"Hosts: {unfit}")
    return _subject(nights, unfit), "\n\n".join(parts)


def _subject(nights: Sequence[Night], unfit: str | None) -> str:
    good = sum(night.state in _GOOD for night in nights)
    said = f"eagle3-sweep: {good} of {len(nights)} nights done" if len(nights) != 1 else ""
    if len(nights) == 1:
        said = f"eagle3-sweep: {nights[0].name}: {nights[0].state}"
    if not nights:
        said = "eagle3-sweep: no night"
    return f"{said}; a host is not fit" if unfit is not None else said


def _lines(night: Night) -> list[str]:
    said = night.message or _ITS_WORDS.get(night.state, "")
    return [
        f"{night.name} ({night.planned:%Y-%m-%d %H:%M} UTC): {night.state}",
        *([said] if said else []),
        *(f"{name}: {url}" for name, url in night.links.items()),
    ]
