"""Ten broken files, ten messages: `eagle3-sweep plan` says what is wrong, where, and what is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweeps import changed, write_host

ROOT = Path(__file__).parent.parent

TEN = {
    "empty": ("", ["sweep.yaml: empty file: a mapping of keys is expected"]),
    "tab": (
        changed(("  kind: sglang", "\tkind: sglang")),
        ["sweep.yaml:5: is not YAML: tab used for indentation: use spaces"],
    ),
    "misspelt": (
        changed(("num_steps: 3", "num_step: 3"), ("concurrency:", "concurency:")),
        [
            "sweep.yaml:19: arms.a.speculation.num_step: unknown key: did you mean num_steps?",
            "sweep.yaml:34: probes.load.concurency: unknown key: did you mean concurrency?",
        ],
    ),
    "yes": (
        changed(("tp-size: 8", "trust-remote-code: yes")),
        [
            (
                "sweep.yaml:8: engine.flags.trust-remote-code: has the word 'yes': write true (YAML "
                "1.2 knows only these two)"
            )
        ],
    ),
    "duplicate": (
        changed(("    speculation: {kind: off}\n", "    note: x\n    note: y\n")),
        ["sweep.yaml:15: arms.base.note: duplicate key: stands in line 14 too: keep one"],
    ),
    "no drafter": (
        changed(("      drafter: /models/b\n", "")),
        [
            (
                "sweep.yaml:23: arms.b.speculation.drafter: is missing (eagle3 needs it): Folder of "
                "the drafter on the host (--speculative-draft-model-path)"
            )
        ],
    ),
    "half of the numbers": (
        changed(("      topk: 1\n", "")),
        [
            (
                "sweep.yaml:16: arms.a.speculation.topk: is missing: give num_steps, topk and "
                "draft_tokens together, or none of them (then the engine chooses)"
            )
        ],
    ),
    "unfair": (
        changed(("    max-running-requests: 64\n", "")),
        [
            (
                "sweep.yaml:7: engine.flags.max-running-requests: is not set for base, a, b: SGLang's "
                "default is 48 when speculating and another when not, so the arms would not be "
                "comparable; set it for all, to at least 8"
            )
        ],
    ),
    "too many GPUs": (
        changed(("tp-size: 8", "tp-size: 16")),
        [
            "sweep.yaml: engine.flags.tp-size: asks for 16 GPUs, host box has 8: lower tp-size",
        ],
    ),
    "no such host and no such patch": (
        changed(("hosts: [box]", "hosts: [bix]\npatches: [kimi_k25_eagel3]")),
        [
            "configs/hosts/bix.yaml: no such file: did you mean box?",
            "configs/patches/kimi_k25_eagel3.yaml: no such file: did you mean kimi_k25_eagle3?",
        ],
    ),
}


@pytest.mark.parametrize("name", TEN)
def test_a_mistake_is_named_without_a_traceback(name, tmp_path):
    text, expected = TEN[name]
    write_host(tmp_path)
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "from flows.cli import main; main()", "plan", "sweep.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.splitlines() == expected
    assert done.stdout == ""
    assert done.returncode == 2
