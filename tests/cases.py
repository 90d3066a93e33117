"""Runs recorded situations from the world through the product and compares the outcomes.

``python -m tests.cases [--cases DIR] [--kind K]``
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.compare_case import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMITTED = Path(__file__).parent / "fixtures" / "cases"

#: kind of a case -> the adapter that asks the product, as module:function.
ADAPTERS = {
    "launch-log": "tests.case_launch_log:launch_log",
    "decode-log": "tests.case_decode_log:decode_log",
    "server-info": "tests.case_server_info:server_info",
    "bench-jsonl": "tests.case_bench_jsonl:bench_jsonl",
    "prometheus": "tests.case_prometheus:prometheus",
    "health-probe": "tests.case_health_probe:health_probe",
    "drafter-config": "tests.case_drafter_config:drafter_config",
    "nvidia-smi": "tests.case_nvidia_smi:nvidia_smi",
    "ps": "tests.case_ps:ps",
    "model-source": "tests.case_model_source:model_source",
    "user-config": "tests.case_user_config:user_config",
    "mlflow": "tests.case_mlflow:mlflow",
    "schedule": "tests.case_schedule:schedule",
    "remote-exec": "tests.case_remote_exec:remote_exec",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    name: str
    kind: str
    status: str
    detail: str = ""

    def line(self) -> str:
        return f"{self.status} {self.name}: {self.detail}" if self.detail else f"ok {self.name}"


def case_folders(root: Path) -> list[Path]:
    return sorted(folder for folder in root.iterdir() if folder.is_dir())


def run_case(folder: Path) -> Outcome:
    """Ask the product about one case; whatever it raises is an ``error``, never ours."""
    kind = "?"
    try:
        expected = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
        kind = str(expected["kind"])
        got = _adapter(kind)(folder, expected.get("given") or {})
        wrong = differences(expected, got)
    except Exception as error:  # noqa: BLE001 - any failure of the product is this case's outcome
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome(folder.name, kind, "error", words[:600])
    return Outcome(folder.name, kind, "differs" if wrong else "ok", "; ".join(wrong))


def _adapter(kind: str) -> Callable[[Path, dict[str, Any]], dict[str, Any]]:
    if kind not in ADAPTERS:
        raise LookupError(f"unknown kind {kind!r}")
    module, _, function = ADAPTERS[kind].partition(":")
    adapter: Callable[[Path, dict[str, Any]], dict[str, Any]]
    adapter = getattr(importlib.import_module(module), function)
    return adapter


def kind_of(folder: Path) -> str:
    try:
        return str(json.loads((folder / "expect.json").read_text(encoding="utf-8"))["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return "?"


def table(outcomes: Sequence[Outcome]) -> list[str]:
    counts = Counter((o.kind, o.status) for o in outcomes)
    kinds = sorted({o.kind for o in outcomes})
    width = max((len(kind) for kind in kinds), default=4)
    rows = [f"{'kind':<{width}}  {'ok':>4}  {'differs':>7}  {'error':>5}"]
    rows += [
        f"{k:<{width}}  {counts[k, 'ok']:>4}  {counts[k, 'differs']:>7}  {counts[k, 'error']:>5}"
        for k in kinds
    ]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("--cases", type=Path, default=COMMITTED, metavar="DIR")
    parser.add_argument("--kind", metavar="K", help="only the cases of this kind")
    asked = parser.parse_args(arguments)
    if not asked.cases.is_dir():
        parser.error(f"no such folder: {asked.cases}")
    outcomes = []
    for folder in case_folders(asked.cases):
        if asked.kind is None or kind_of(folder) == asked.kind:
            outcomes.append(run_case(folder))
            print(outcomes[-1].line(), flush=True)
    print()
    print("\n".join(table(outcomes)))
    passed = sum(o.status == "ok" for o in outcomes)
    print(f"{passed} passed, {len(outcomes) - passed} failed")
    return 0 if passed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
