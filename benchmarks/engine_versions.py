"""What differs between releases of SGLang beside its flags, read out of their wheels.

``python -m benchmarks.engine_versions`` (``make engine-tables``) writes
configs/engines/sglang-versions.tsv, the one table of environment variables, endpoints, fields,
counters and log words with the first and last release that has them, and docs/evidence/
sglang-versions.md, which says how the table was made and what changed when.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from pathlib import Path
from typing import Final

from benchmarks.engine_flags import ENGINES, SGLANG, options, sources
from benchmarks.written import out_of_date

TABLE = ENGINES / "sglang-versions.tsv"
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "sglang-versions.md"
_ENV = re.compile(r"\bSGL(?:ANG)?_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
_ROUTE = re.compile(r'@app\.\w+\(\s*"(/[^"{]*)"')

_MADE: Final = (
    "Made by `make engine-tables`, which fetches the wheels that the package index holds and reads "
    "their source with `ast`; importing the parser would take torch and more, so none is run here. "
    "On a host the installed engine's own parser is asked instead ([engines](../engines.md)). The "
    "tables are [sglang-flags.tsv](../../configs/engines/sglang-flags.tsv) and "
    "[sglang-versions.tsv](../../configs/engines/sglang-versions.tsv)."
)

WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("log", "Max running requests is reset to"),
    ("log", "Overlap scheduler is disabled when spec v2 is off"),
    ("log", "Spec v1 is used"),
    ("log", "Spec v2 is enabled"),
    ("log", "Non-overlap (synchronous) spec v2 is used"),
    ("log", "Init torch distributed begin"),
    ("log", "sglang is using nccl=="),
    ("log", "Load weight begin"),
    ("log", "Load weight end"),
    ("log", "Using KV cache dtype"),
    ("log", "KV Cache is allocated"),
    ("log", "Post-capture KV sizing"),
    ("log", "Memory pool end"),
    ("log", "Capture cuda graph bs "),
    ("log", "Capture draft cuda graph begin"),
    ("log", "Entering DeepGEMM JIT Pre-Compile"),
    ("log", "max_total_num_tokens="),
    ("log", "The server is fired up and ready to roll"),
    ("log", "Decode batch"),
    ("log", "accept len: "),
    ("log", "accept rate: "),
    ("log", "Received sigquit from a child process"),
    ("log", "scheduler is dead"),
    ("log", "scheduler died during initialization"),
    ("log", "Initialization failed. warmup error"),
    ("log", "Ignore import error when loading"),
    ("log", "Gracefully exiting"),
    ("log", "The memory capacity is unbalanced"),
    ("log", "Not enough memory. Please try to increase --mem-fraction-static"),
    ("log", "Capture cuda graph failed"),
    ("log", "EAGLE is not supported in"),
    ("field", "spec_verify_ct"),
    ("field", "spec_accept_token_num"),
    ("field", "spec_accepted_drafts"),
    ("field", "spec_num_correct_drafts"),
    ("field", "spec_draft_token_num"),
    ("field", "spec_proposed_drafts"),
    ("field", "spec_num_proposed_drafts"),
    ("field", "spec_accept_histogram"),
    ("field", "spec_correct_drafts_histogram"),
    ("field", "avg_spec_accept_length"),
    ("field", "effective_max_running_requests_per_dp"),
    ("counter", "sglang:spec_verify_calls_total"),
    ("counter", "sglang:spec_accept_length"),
    ("counter", "sglang:spec_accept_rate"),
)
"""What our readers of logs, answers and metrics look for."""

CLIENT_MODULES: Final = ("sglang.bench_serving", "sglang.benchmark.serving")
CLIENT: Final[tuple[tuple[str, str], ...]] = (
    *(("module", name) for name in CLIENT_MODULES),
    ("client", "backend"),
    ("client", "base-url"),
    ("client", "dataset-name"),
    ("client", "dataset-path"),
    ("client", "disable-tqdm"),
    ("client", "extra-request-body"),
    ("client", "max-concurrency"),
    ("client", "model"),
    ("client", "num-prompts"),
    ("client", "output-file"),
    ("client", "random-input-len"),
    ("client", "random-output-len"),
    ("client", "random-range-ratio"),
    ("client", "ready-check-timeout-sec"),
    ("client", "request-rate"),
    ("client", "seed"),
    ("client", "sharegpt-output-len"),
    ("client", "tag"),
    ("client", "tokenize-prompt"),
    ("client", "tokenizer"),
    ("client", "warmup-requests"),
)
"""The load generator that comes with the engine: what ``python -m`` runs, and the options of it
that a probe of kind bench-serving gives."""


def names(version: str) -> set[tuple[str, str]]:
    """(kind, name) of everything that a release has, flags apart."""
    files = sources("sglang", version)
    runtime = "\n".join(text for path, text in files.items() if path.startswith("sglang/srt/"))
    server = "\n".join(text for path, text in files.items() if path.endswith("/http_server.py"))
    clients = {name: files.get(f"{name.replace('.', '/')}.py") for name in CLIENT_MODULES}
    client = "\n".join(text for text in clients.values() if text)
    return {
        *(("env", name) for name in _ENV.findall(runtime)),
        *(("endpoint", route) for route in _ROUTE.findall(server)),
        *((kind, text) for kind, text in WORDS if text in runtime),
        *(("module", name) for name, text in clients.items() if text),
        *((kind, word) for kind, word in CLIENT if kind == "client" and f'"--{word}"' in client),
    }


def table(held: dict[str, set[tuple[str, str]]]) -> str:
    """The table as text, by kind and name."""
    versions = list(held)
    rows = [f"# kind\tname\tfirst seen\tlast seen (of {', '.join(versions)};"]
    rows[0] += " made by benchmarks/engine_versions.py)"
    for kind, name in sorted(set().union(*held.values())):
        having = [version for version in versions if (kind, name) in held[version]]
        rows.append("\t".join([kind, name, having[0], having[-1]]))
    return "\n".join(rows) + "\n"


def gaps(held: dict[str, set[tuple[str, str]]]) -> list[str]:
    """Names that a release lacks although an earlier and a later one have them."""
    versions = list(held)
    found = []
    for kind, name in sorted(set().union(*held.values())):
        there = [(kind, name) in held[version] for version in versions]
        first, last = there.index(True), len(there) - there[::-1].index(True)
        missing = [versions[n] for n in range(first, last) if not there[n]]
        found += [f"{kind} {name} (not in {', '.join(missing)})"] if missing else []
    return found


def page(held: dict[str, set[tuple[str, str]]], flags: dict[str, set[str]]) -> str:
    """The evidence page."""
    versions = list(held)
    lines = [
        "# SGLang by version",
        "",
        _MADE,
        "",
        "| release | option names | came | went | environment variables | came | went | endpoints |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for before, version in zip([None, *versions], versions, strict=False):
        env, routes = ({n for kind, n in held[version] if kind == k} for k in ("env", "endpoint"))
        was_flags = flags[before] if before else flags[version]
        was_env = {n for k, n in held[before] if k == "env"} if before else env
        lines.append(
            f"| {version} | {len(flags[version])} | {len(flags[version] - was_flags)} | "
            f"{len(was_flags - flags[version])} | {len(env)} | {len(env - was_env)} | "
            f"{len(was_env - env)} | {len(routes)} |"
        )
    lines += ["", "## Options that went", ""]
    for before, version in itertools.pairwise(versions):
        gone = sorted(flags[before] - flags[version])
        if gone:
            lines.append(f"- {version}: {', '.join(f'`--{name}`' for name in gone)}")
    lines += ["", "## Words of logs, answers and counters, and the client", ""]
    lines += ["| kind | text | first | last |", "|---|---|---|---|"]
    for kind, text in (*WORDS, *CLIENT):
        having = [version for version in versions if (kind, text) in held[version]]
        lines.append(f"| {kind} | `{text.strip()}` | {having[0]} | {having[-1]} |")
    whole = {v: held[v] | {("flag", name) for name in flags[v]} for v in versions}
    odd = [f"- {text}" for text in gaps(whole)]
    lines += ["", "## Names that were away for a while between their first and last release", ""]
    lines += odd or ["None."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes table and page, or with ``--check`` says which of them is out of date."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.engine_versions", description=__doc__)
    made.add_argument("--check", action="store_true", help="write nothing; exit 1 if one differs")
    check = made.parse_args().check
    held = {version: names(version) for version in SGLANG}
    flags = {
        version: {name for option in options("sglang", version) for name in option.names}
        for version in SGLANG
    }
    stale = out_of_date(((TABLE, table(held)), (PAGE, page(held, flags))), check=check)
    print(f"out of date: {', '.join(stale)}" if stale else "table and page are as the wheels say")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
