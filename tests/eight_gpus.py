"""The sweep for eight GPUs (tests/gpu) as it is, and as the pretend host can run it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from configs.read import parse_sweep

if TYPE_CHECKING:
    from types import ModuleType

    from configs.sweep import Sweep

GPU = Path(__file__).parent / "gpu"
ASKED = GPU / "configs" / "sweeps" / "h200-x8.yaml"
PIECES = {
    # what lies elsewhere there
    "hosts: [h200-x8]": "hosts: [box]",
    # its target lacks the hooks of EAGLE-3
    "baseline: base\n": "baseline: base\npatches: [kimi_k25_eagle3]\n",
    "/tmp/n/x8/target": "shared/kimi-k2.5-int4",
    "/tmp/n/x8/drafter": "data/eagle3/k25-tuned",
    "prompts/x8.jsonl": "mixed",
    # its SGLang is 0.5.9, which has no such flag
    "    disable-piecewise-cuda-graph: true\n": "",
    # two cores, and no more of the question than all of its settings
    "concurrency: [1, 8, 64]": "concurrency: [1, 4]",
    "requests_per_slot: 6": "requests_per_slot: 3",
    "max_new_tokens: 192": "max_new_tokens: 48",
    "warm_up: {max_windows: 4}": "warm_up: {per_slot: 1, max_new_tokens: 4, max_windows: 0}",
    "concurrency: [8]": "concurrency: [2]",
    "stop_s: 10": "stop_s: 1",
}


def prepare() -> ModuleType:
    """tests/gpu/prepare.py, which is a script and no part of a package."""
    spec = importlib.util.spec_from_file_location("prepare", GPU / "prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rehearsed(more: str = "") -> Sweep:
    """The sweep with the pretend host's paths and flags, and less traffic; every piece must fit."""
    text = ASKED.read_text()
    for real, pretended in PIECES.items():
        assert text.count(real), real
        text = text.replace(real, pretended)
    return parse_sweep(text + more, str(ASKED))
