"""Sweeps and hosts as text and as values, so that a test states only what it is about."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from configs.host import Host
from configs.read import parse, parse_sweep
from configs.sweep import Sweep

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
name: two-drafters
question: Which of two drafters pays?
hosts: [box]
engine:
  kind: sglang
  model: /models/target
  flags:
    tp-size: 8
    max-running-requests: 64
    cuda-graph-max-bs: 64
baseline: base
arms:
  base:
    speculation: {kind: off}
  a:
    speculation:
      kind: eagle3
      drafter: /models/a
      num_steps: 3
      topk: 1
      draft_tokens: 4
  b:
    speculation:
      kind: eagle3
      drafter: /models/b
factors:
  nccl:
    default: {}
    ll: {env: {NCCL_PROTO: LL}}
probes:
  load:
    kind: stream
    prompts: mixed
    concurrency: [1, 8]
blocks: 2
seed: 3
"""

HOST: dict[str, Any] = {
    "name": "box",
    "connect": {"kind": "ssh", "host": "gpu-a", "user": "me"},
    "python": "/opt/sglang/bin/python",
    "gpus": 8,
    "host_class": "8x-h200",
}


def changed(*changes: tuple[str, str]) -> str:
    """The sweep's text with each first place of an old text replaced."""
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def sweep(*changes: tuple[str, str]) -> Sweep:
    return parse_sweep(changed(*changes), "sweep.yaml")


def unchecked(*changes: tuple[str, str]) -> Sweep:
    """A sweep of the right shape, whatever the rules say of it."""
    return parse(Sweep, changed(*changes), "sweep.yaml")


def host(**fields: Any) -> Host:
    return parse(Host, json.dumps(HOST | fields), "host.yaml")


def write_host(folder: Path, **fields: Any) -> Path:
    """A host file under configs/hosts of a folder."""
    path = folder / "configs" / "hosts" / f"{(HOST | fields)['name']}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(HOST | fields), encoding="utf-8")
    return path
