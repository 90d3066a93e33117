"""Lays and restores the file tree of a pretend GPU host."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import aiohttp

from infra.rehearsal import faults, knobs, memory, site_text, strange, weights

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = "shared/kimi-k2.5-int4"
DRAFTERS = {
    "data/eagle3/aq-medai-k2-drafter": [2, 30, 58],
    "data/eagle3/k25-custom": [1, 29, 57],
    "data/eagle3/k25-tuned": [2, 30, 58],
}
"""Drafter folders under the home folder, with the aux layers that each was trained on."""


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _programs(folder: Path) -> None:
    """``bin`` comes first on the host's PATH; ``venv/bin/python`` is the engine's Python."""
    bare = shlex.quote(str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"))
    answer = folder / "bin" / ".nvidia-smi.py"
    answer.parent.mkdir(parents=True, exist_ok=True)
    answer.write_text(
        f"import sys\n\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from pathlib import Path\n\nfrom infra.rehearsal.smi import main\n\n"
        f"sys.exit(main(Path({str(folder)!r}), sys.argv[1:]))\n"
    )
    _script(
        folder / "bin" / "nvidia-smi",
        f'#!/bin/sh\nexec {bare} -S -E {shlex.quote(str(answer))} "$@"\n',
    )
    _script(folder / "bin" / "python3", strange.launcher(folder, bare))
    site = folder / "home" / "site"
    packages = Path(aiohttp.__file__).parents[1]
    paths = f"{shlex.quote(str(site))}:{shlex.quote(str(packages))}"
    for name in ("python", "python3"):
        _script(
            folder / "home" / "venv" / "bin" / name,
            f"#!/bin/sh\nexport PYTHONPATH={paths}${{PYTHONPATH:+:$PYTHONPATH}}\n"
            f'exec {bare} "$@"\n',
        )


def _site(folder: Path) -> None:
    site = folder / "home" / "site"
    shutil.rmtree(site, ignore_errors=True)
    for relative, text in site_text.files(str(REPOSITORY), str(folder)).items():
        path = site / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (site / "sitecustomize.py").write_text(strange.hook(folder))


def _models(folder: Path) -> None:
    home = folder / "home"
    weights.write_model(home / TARGET, weights.TARGET_CONFIG, weights.target_tensors())
    for relative, aux in DRAFTERS.items():
        config = weights.drafter_config(aux)
        weights.write_model(home / relative, config, weights.drafter_tensors())


def build(folder: Path, settings: knobs.Knobs | None = None) -> None:
    """Lay the tree; what is already there of it is laid anew, logs and trials stay.

    Args:
        folder: of the host.
        settings: knobs to write; left as they are when None and present.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    for gpu in range(memory.GPUS):
        (folder / "gpu" / str(gpu)).mkdir(parents=True, exist_ok=True)
    _programs(folder)
    _site(folder)
    _models(folder)
    if settings is not None or not (folder / knobs.FILE).exists():
        knobs.write(folder, settings or knobs.Knobs())
    if not (folder / faults.FILE).exists():
        faults.write(folder, [])


def reset(folder: Path) -> None:
    """The pristine host: unpatched files, no planted memory, no faults, the knobs' defaults.

    Memory of living processes stays: it is theirs until they end.
    """
    for path in folder.glob("gpu/*/*"):
        pid, _, ticks = path.name.partition("-")
        alive = pid.isdigit() and memory.start_ticks(int(pid)) == int(ticks)
        if not alive:
            path.unlink(missing_ok=True)
    faults.write(folder, [])
    knobs.write(folder, knobs.Knobs())
    build(folder)
