"""Where things are kept on the controller: one state folder, so that it can be seen and removed."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """The folder of everything that runs or is recorded here: EAGLE3_HOME, default ./.eagle3."""
    return Path(os.environ.get("EAGLE3_HOME") or ".eagle3").expanduser().absolute()


def runs_folder() -> Path:
    """The folder of run folders: EAGLE3_RUNS, default <state folder>/runs."""
    chosen = os.environ.get("EAGLE3_RUNS")
    return Path(chosen).expanduser().absolute() if chosen else state_folder() / "runs"
