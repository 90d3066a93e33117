"""Turns the neutral settings of a recorded case into our own YAML, and our places back."""

from __future__ import annotations

import json
import re
from typing import Any

#: Neutral key -> our key in a sweep; {arm} is the arm that the settings are put into.
SWEEP = {
    "name": "name",
    "framework": "engine.kind",
    "model": "engine.model",
    "tp": "arms.{arm}.flags.tp-size",
    "dp": "arms.{arm}.flags.dp-size",
    "cuda_graph_max_bs": "arms.{arm}.flags.cuda-graph-max-bs",
    "max_running_requests": "arms.{arm}.flags.max-running-requests",
    "mem_fraction_static": "arms.{arm}.flags.mem-fraction-static",
    "context_length": "arms.{arm}.flags.context-length",
    "attention_backend": "arms.{arm}.flags.attention-backend",
    "page_size": "arms.{arm}.flags.page-size",
    "env": "arms.{arm}.env",
    "speculative": "arms.{arm}.speculation",
    "speculative.algorithm": "arms.{arm}.speculation.kind",
    "speculative.draft": "arms.{arm}.speculation.drafter",
    "speculative.num_draft_tokens": "arms.{arm}.speculation.draft_tokens",
    "probe": "probes.load",
    "probe.dataset": "probes.load.prompts",
    "probe.input_len": "probes.load.random.tokens",
    "probe.random_range_ratio": "probes.load.random.range_ratio",
    "probe.num_prompts": "probes.load.min_requests",
    "probe.output_len": "probes.load.sampling.max_new_tokens",
    "probe.temperature": "probes.load.sampling.temperature",
}
HOST = {"host": "connect.host", "port": "port", "gpus": "gpus", "user": "connect.user"}
VLLM = {
    "name": "name",
    "framework": "engine.kind",
    "model": "engine.model",
    "tp": "arms.{arm}.flags.tensor-parallel-size",
    "speculative.draft": "arms.{arm}.speculation.drafter",
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "EAGLE": {"kind": "eagle"},
    "EAGLE3": {"kind": "eagle3"},
    "NEXTN": {"kind": "nextn"},
    "STANDALONE": {"kind": "standalone"},
    "NGRAM": {"kind": "ngram"},
}
#: Our word -> the neutral word, in sentences.
WORDS = {
    "draft_tokens": "num_draft_tokens",
    "eagle3": "EAGLE3",
    "max-running-requests": "max_running_requests",
    "cuda-graph-max-bs": "cuda_graph_max_bs",
    "mem-fraction-static": "mem_fraction_static",
    "tp-size": "tp",
}


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Every setting by its dotted path; ``env`` and lists stay whole."""
    if not isinstance(tree, dict) or path.rpartition(".")[2] == "env" or (path and not tree):
        return {path: tree}
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= leaves(value, f"{path}.{key}" if path else key)
    return found


def build(neutral: dict[str, Any], table: dict[str, str], arm: str, base: Any) -> dict[str, Any]:
    """Our tree: each setting of the table at its place in a copy of the base."""
    tree: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in leaves(neutral).items():
        head, _, key = path.rpartition(".")
        ours = table.get(path) or (f"{table[head]}.{key}" if head in table else None)
        if ours is None or (value is None and (".flags." in ours or path == "speculative")):
            continue  # null: not set
        steps = ours.format(arm=arm).split(".")
        into = tree
        for step in steps[:-1]:
            into = into.setdefault(step, {})
        if path == "speculative.algorithm":
            into |= ALGORITHMS.get(str(value), {"kind": value})
        elif path == "gpus" and isinstance(value, list):
            into[steps[-1]] = len(value)
        else:
            into[steps[-1]] = value
    return tree


def place(where: str, table: dict[str, str], arm: str) -> str:
    """The neutral name of one of our places."""
    where = where.replace("engine.flags.", f"arms.{arm}.flags.")
    for theirs, ours in sorted(table.items(), key=lambda pair: -len(pair[1])):
        named = ours.format(arm=arm)
        if where == named or where.startswith(f"{named}."):
            return theirs + re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", where[len(named) :])
    return where


def words(message: str) -> str:
    """A sentence of ours in the neutral words."""
    for ours, theirs in WORDS.items():
        message = re.sub(rf"(?<![\w-]){ours}(?![\w-])", theirs, message)
    return message
