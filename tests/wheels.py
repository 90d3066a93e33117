"""Fetches released wheels of an engine through pip and reads single files out of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eagle3-sweep" / "wheels"


def file_in_wheel(package: str, version: str, path: str) -> bytes | None:
    """One file of a release, ``None`` if the release lacks it; skips where no index answers."""
    with zipfile.ZipFile(wheel(package, version)) as archive:
        name = f"{package}/{path}"
        return archive.read(name) if name in archive.namelist() else None


@cache
def wheel(package: str, version: str) -> Path:
    found = sorted(CACHE.glob(f"{package}-{version}-*.whl"))
    if found:
        return found[0]
    CACHE.mkdir(parents=True, exist_ok=True)
    # Into a folder of its own first: a download that is cut off never looks like a wheel.
    part = CACHE / f"part-{os.getpid()}"
    command = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--timeout=15", "--retries=1"]
    command += ["--dest", str(part), f"{package}=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            pytest.skip(f"{package} {version} cannot be fetched: {said}")
        fetched = next(part.glob("*.whl"))
        return Path(shutil.move(fetched, CACHE / fetched.name))
    except subprocess.TimeoutExpired:
        pytest.skip(f"{package} {version} cannot be fetched: the index does not answer")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _pip() -> list[str]:
    for python in (sys.executable, shutil.which("python3")):
        if python is None:
            continue
        probe = [python, "-m", "pip", "--version"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return [python, "-m", "pip"]
    pytest.skip("no pip here to fetch wheels with")
