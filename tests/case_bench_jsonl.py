"""Asks the product about a case of kind ``bench-jsonl``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.bench_result import Circumstances, read_bench
from tasks.bench_speedup import compare_results

if TYPE_CHECKING:
    from pathlib import Path

SAME_NAME = ("requested", "max_failed_share", "wanted_output_len", "ignore_eos", "spec_active",
             "dp_size", "server_failed_at_s", "tag")  # fmt: skip


def bench_jsonl(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    known = Circumstances(
        server_failure=given.get("server_log_failure"),
        **{name: given[name] for name in SAME_NAME if given.get(name) is not None},
    )
    found = [p for p in folder.glob("*.json*") if p.name != "expect.json"]
    files = sorted(found, key=lambda path: "base" not in path.name)
    results = [
        read_bench(path.read_text(encoding="utf-8", errors="replace"), known) for path in files
    ]
    outcome = results[-1].model_dump(mode="json")
    if len(results) < 2:
        return outcome
    ratio = compare_results(
        results[0], results[-1], given.get("baseline_server"), given.get("spec_server")
    )
    outcome |= ratio.model_dump(mode="json")
    outcome["valid"] = all(result.valid for result in results)
    outcome["warnings"] = [*results[-1].warnings, *ratio.warnings]
    return outcome
