"""The screen beside what rests on it: screen.json in a run folder, written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from infra.store import write_value
from tasks.screen import Screen

if TYPE_CHECKING:
    from pathlib import Path

    from infra.store import RunFolder

FILE: Final = "screen.json"


def keep_screen(run: RunFolder, screen: Screen | None) -> None:
    """Writes the screen that a run's plan rests on into its folder."""
    if screen is not None:
        write_value(run.path / FILE, screen)


def read_screen(folder: Path) -> Screen | None:
    """The screen in a run folder; None where there is none that this version can read."""
    path = folder / FILE
    try:
        return Screen.model_validate_json(path.read_bytes()) if path.is_file() else None
    except ValidationError:
        return None
