"""Which version of this program runs, installed or from a bare checkout."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def product_version() -> str:
    """The version, from the installed package or from pyproject.toml beside the rooms."""
    try:
        return version("eagle3-sweep")
    except PackageNotFoundError:
        text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])
