"""A sweep as people type it into a form: lists with names in place of mappings.

Prefect's run form draws lists of models as fields with an *Add* button, and every mapping as one
box of JSON; a sweep's arms and probes are mappings.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from configs.flags import Flags
from configs.names import Count, EnvName, Name, Text
from configs.probe import Stream
from configs.read import parse_document, parse_sweep, to_yaml
from configs.speculation import Eagle3, Nextn, Ngram, Off, Standalone
from configs.sweep import Engine, Sweep
from configs.values import Value

FormSpeculation = Off | Eagle3 | Nextn | Standalone | Ngram
"""The ways of speculating that the form offers."""


class FormArm(Value):
    """One server setting under test."""

    name: Name
    """Lower case, digits, . _ - ; the report calls it so."""
    speculation: FormSpeculation = Off()
    flags: Flags = {}
    """Flags of this arm alone, as JSON: {"mem-fraction-static": 0.8}."""
    env: dict[EnvName, str] = {}
    """Variables of this arm alone, as JSON."""
    note: str = ""


class FormProbe(Value):
    """Traffic with a name."""

    name: Name
    traffic: Stream


class SweepForm(Value):
    """A whole sweep."""

    name: Name
    """Lower case, digits, . _ - ; the run folder and the MLflow experiment are called so."""
    question: Text
    """In one sentence, for the report."""
    hosts: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Names of files in configs/hosts."""
    engine: Engine
    """What all arms share; flags and variables as JSON: {"tp-size": 8, "cuda-graph-max-bs": 64}."""
    arms: Annotated[tuple[FormArm, ...], Field(min_length=1)]
    """The settings under test, the baseline among them."""
    baseline: Name
    """Name of the arm that all others are compared with."""
    probes: Annotated[tuple[FormProbe, ...], Field(min_length=1)]
    """The traffic."""
    patches: tuple[Name, ...] = ()
    """Names of files in configs/patches."""
    blocks: Count = 3
    """Repeats: one block is one pass over all arms."""
    more: dict[str, Any] = {}
    """Any further key of a sweep's file, as JSON: {"until": {"hours": 6}}."""

    def sweep(self) -> Sweep:
        """The sweep that this is, checked as a file is.

        Raises:
            ConfigError: Everything that is wrong with it.
        """
        # What was left as it is stays out: a sweep's own defaults are the ones that count.
        said = parse_document(to_yaml(self), "form").data
        further = said.pop("more", {})
        said["blocks"] = self.blocks
        said["arms"] = {arm.pop("name"): arm for arm in said["arms"]}
        said["probes"] = {probe["name"]: probe["traffic"] for probe in said["probes"]}
        # JSON is YAML, so the form is read by the same door as a file.
        return parse_sweep(json.dumps(said | further), "form")
