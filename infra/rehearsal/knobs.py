"""The settings of one pretend host: how fast it runs and how it behaves."""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FILE = "rehearsal.json"
COUNTED: Final = ("requests", "both", "metrics", "nowhere")


@dataclass(frozen=True)
class Knobs:
    """Settings of the pretend host, kept in ``rehearsal.json``.

    Attributes:
        time_scale: how many times faster than the truth the engine runs
            (``EAGLE3_REHEARSAL_TIME_SCALE`` wins).
        start_s: seconds that a whole start takes.
        noise_cv: spread of the factor that each boot puts on its step time (0 = none).
        seed: of that factor, together with the trial's marker.
        release_delay_s: how long GPU memory of a dead process stays in use.
        hot_gpu: a card that throttles for heat whenever it works; None: none does.
        drain_check_s: how often a server looks whether it was asked to stop (SGLang: 5 s).
        watch_children: notice a killed scheduler after about a second, as SGLang does from
            0.5.10 on; 0.5.9 does not, and hangs.
        counts: where speculation is counted: ``requests`` (``meta_info``, as in 0.5.9), ``both``
            (and ``spec_verify_calls_total`` in ``/metrics``, as from 0.5.13 on), ``metrics``
            alone, or ``nowhere`` (then the average in ``/server_info`` is all there is).
    """

    time_scale: float = 5.0
    start_s: float = 0.3
    noise_cv: float = 0.003
    seed: int = 1
    release_delay_s: float = 0.0
    hot_gpu: int | None = None
    drain_check_s: float = 0.1
    watch_children: bool = False
    counts: str = "requests"

    def noise(self, trial: str) -> float:
        """The factor on the step time of this boot: reproducible from seed and marker."""
        if self.noise_cv == 0:
            return 1.0
        return 1 + self.noise_cv * random.Random(f"{self.seed}:{trial}").gauss(0, 1)


def read(folder: Path) -> Knobs:
    """The knobs of a host folder; defaults where the file or a key is absent.

    Raises:
        ValueError: an unknown key or place of counts, so that a misspelt knob is not silently
            ignored.
    """
    path = folder / FILE
    found = json.loads(path.read_text()) if path.exists() else {}
    unknown = set(found) - {field.name for field in fields(Knobs)}
    if unknown:
        raise ValueError(f"{path}: unknown knobs {sorted(unknown)}")
    if found.get("counts", COUNTED[0]) not in COUNTED:
        raise ValueError(f"{path}: counts is {found['counts']!r}: one of {', '.join(COUNTED)}")
    scale = os.environ.get("EAGLE3_REHEARSAL_TIME_SCALE")
    if scale:
        found["time_scale"] = float(scale)
    return Knobs(**found)


def write(folder: Path, knobs: Knobs) -> None:
    """Put the knobs into the host folder, atomically."""
    write_atomically(folder / FILE, json.dumps(asdict(knobs), indent=2) + "\n")


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file beside its place and rename it there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    beside.chmod(mode)
    beside.replace(path)
