"""Finds the input file of a case: by its usual name, else the only one of its sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def the_file(folder: Path, usual: str) -> Path:
    """The file of that name, else the only file in the folder that ends like it."""
    asked = folder / usual
    alike = [p for p in folder.glob(f"*{asked.suffix}") if p.name != "expect.json"]
    return alike[0] if not asked.exists() and len(alike) == 1 else asked
