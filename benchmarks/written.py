"""Files that a benchmark makes: written where they differ, or only held against what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def out_of_date(made: Iterable[tuple[Path, str]], *, check: bool) -> list[str]:
    """Names of the files that differ from what was made; they are written unless ``check``."""
    stale = []
    for path, text in made:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    return stale
