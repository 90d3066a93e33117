"""What `infra/systemd` ships, for tests that start it without systemd."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = Path(__file__).parents[1] / "infra" / "systemd"


def settings() -> dict[str, str]:
    """The environment that all units share, as it is shipped."""
    lines = (_UNITS / "eagle3.env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def words(unit: str) -> list[str]:
    """The command of a unit."""
    lines = (_UNITS / unit).read_text(encoding="utf-8").splitlines()
    (command,) = (
        line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart=")
    )
    return shlex.split(command)


def moved(text: str, places: Mapping[str, str]) -> str:
    """A text with places and ports of this machine in place of the shipped ones."""
    for shipped, here in places.items():
        text = text.replace(shipped, here)
    return text
