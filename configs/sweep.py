"""A sweep: the question, as one value; the checks that need the whole of it are in rules.py."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from configs.flags import Flags
from configs.names import Count, EnvName, Name, Number, Seconds, Text, Whole
from configs.probe import Probe
from configs.speculation import Off, Speculation
from configs.values import Value


class Sglang(Value):
    """The engine and what all arms share."""

    kind: Literal["sglang"] = "sglang"
    model: Text
    """Folder of the target on the host (--model-path)."""
    flags: Flags = {}
    """Any flag by its full name without dashes: {tp-size: 8, trust-remote-code: true}."""
    env: dict[EnvName, str] = {}
    env_from: tuple[EnvName, ...] = ()
    """Names of secrets that are taken from the controller's environment."""


Engine = Sglang


class Level(Value):
    """One alternative of a factor: what it adds to the engine's flags and environment."""

    flags: Flags = {}
    env: dict[EnvName, str] = {}


class Arm(Value):
    """One server setting under test."""

    speculation: Speculation = Off()
    flags: Flags = {}
    """Flags of this arm alone; they win over the engine's."""
    env: dict[EnvName, str] = {}
    note: str = ""


class Patience(Value):
    """How long each part may take before a trial is given up."""

    start_s: Seconds = 3600.0
    """From launch to ready: a 500 GB model from a slow disk takes most of an hour."""
    silence_s: Seconds = 1200.0
    """Without any progress in the start log (kernel compilation is silent for long), or without
    any token in a probe."""
    stop_s: Seconds = 20.0
    """From SIGTERM to SIGKILL."""
    gpu_free_s: Seconds = 120.0
    """For GPU memory and port to come back after the engine is gone."""
    claim_s: Annotated[Number, Field(ge=0)] = 0.0
    """How long to wait for a host that another sweep holds; 0: refuse at once."""


class Sweep(Value):
    """The question. It is one YAML file; everything else follows from it."""

    name: Name
    question: Text
    """In one sentence, for the report."""
    hosts: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Names of files in configs/hosts."""
    engine: Engine
    baseline: Name
    """The arm that all others are compared with."""
    arms: Annotated[dict[Name, Arm], Field(min_length=1)]
    factors: dict[Name, dict[Name, Level]] = {}
    """Factor -> level -> what it adds; crossed with the arms. A factor's first level is its
    reference."""
    probes: Annotated[dict[Name, Probe], Field(min_length=1)]
    patches: tuple[Name, ...] = ()
    """Names of files in configs/patches, applied before launch."""
    keep_patch: bool = False
    """Leave the patched file in place after the trial."""
    blocks: Count = 3
    """Repeats: one block is one pass over all arms, in a shuffled order."""
    seed: Annotated[Whole, Field(ge=0)] = 1
    """Of the order of trials and prompts."""
    same_margin: Annotated[Number, Field(gt=0, lt=0.5)] = 0.02
    """Within this ratio either way two speeds are the same."""
    patience: Patience = Patience()
    tolerate: dict[Name, Text] = {}
    """Finding -> why it does not make a trial suspect here. It stays in the record and the
    report; use it for what is known and the same in all arms."""
