"""A Python that has torch, for tests of what runs in an engine's environment; torch is no dependency."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

VARIABLE = "TORCH_PYTHON"
BESIDE = Path(__file__).parents[1] / ".venv-torch" / "bin" / "python"


@functools.cache
def torch_python() -> str | None:
    """The Python named by TORCH_PYTHON, else that of .venv-torch; None where neither has torch."""
    for python in filter(None, (os.environ.get(VARIABLE), str(BESIDE))):
        if not Path(python).exists():
            continue
        # A bare name of the package would load all of it, which takes seconds.
        code = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
        if subprocess.run([python, "-c", code], check=False, timeout=60).returncode == 0:
            return python
    return None


WHY_NOT = f"no Python with torch: `make torch` makes .venv-torch, or {VARIABLE} names one"
