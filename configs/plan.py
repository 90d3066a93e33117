"""From a sweep to its plan: every trial, in blocks of drawn order, each with its fingerprint."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from typing import TYPE_CHECKING

from configs.cells import cells
from configs.flags import canonical, is_switch
from configs.layers import arm_flags, engine_of
from configs.nodes import place_name
from configs.order import block_orders
from configs.synthetic import synthetic_env
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from configs.names import FlagValue
    from configs.releases import EngineKind
    from configs.sweep import Sweep


class Trial(Value):
    """One boot of one arm under one combination of levels, in one block on one host."""

    id: str
    """b01-<arm>-<level>..., unique in the plan and stable."""
    arm: str
    levels: dict[str, str]
    """Factor -> level."""
    block: int
    """From 1."""
    order: int
    """Place in the plan, from 0."""
    host: str
    """Where: a host, or the nodes of one place (node0+node1)."""
    intent: str
    """Hash of what is asked for: engine, flags, environment, speculation, patches, probes. The
    trial's fingerprint adds what the host turns out to be (tasks/fingerprint.py)."""


class Plan(Value):
    """All trials of a sweep, in the order in which they run."""

    sweep: str
    seed: int
    digest: str
    """Hash of the sweep's own words; two runs of one digest are runs of one plan."""
    trials: tuple[Trial, ...]


def make_plan(sweep: Sweep, contents: Mapping[str, str] | None = None) -> Plan:
    """The plan of a sweep: same sweep, same plan.

    Args:
        sweep: The question.
        contents: Hashes of what the sweep names but does not hold (prompt sets, patches), by
            name; they go into every trial's intent.
    """
    held = dict(contents or {})
    shuffle = random.Random(f"{sweep.name}:{sweep.seed}")  # noqa: S311 - an order, not a secret
    settings = cells(sweep)
    shared = shared_by_all(sweep, held)
    intents = {(arm, _key(levels)): intent(sweep, arm, levels, shared) for arm, levels in settings}
    trials: list[Trial] = []
    for block, order in enumerate(block_orders(settings, sweep.blocks, shuffle), start=1):
        place = place_name(sweep.hosts[(block - 1) % len(sweep.hosts)])
        for arm, levels in order:
            trials.append(
                Trial(
                    id="-".join([f"b{block:02d}", arm, *levels.values()]),
                    arm=arm,
                    levels=levels,
                    block=block,
                    order=len(trials),
                    host=place,
                    intent=intents[arm, _key(levels)],
                )
            )
    return Plan(sweep=sweep.name, seed=sweep.seed, digest=digest(sweep, held), trials=tuple(trials))


def intent(sweep: Sweep, arm: str, levels: Mapping[str, str], shared: Mapping[str, object]) -> str:
    """Hash of everything in the sweep that may change this setting's numbers.

    Args:
        sweep: The question.
        arm: Its arm.
        levels: Factor -> level.
        shared: What :func:`shared_by_all` gives, made once for all settings.
    """
    engine = engine_of(sweep, arm)
    return hash_of(
        {
            "engine": engine.kind,
            "model": engine.model,
            "flags": _sorted_flags(arm_flags(sweep, arm, dict(levels)), engine.kind),
            "env": arm_env(sweep, arm, levels),
            "speculation": sweep.arms[arm].speculation.model_dump(mode="json"),
            **shared,
        }
    )


def shared_by_all(sweep: Sweep, contents: Mapping[str, str]) -> dict[str, object]:
    """What may change the numbers and is the same for all settings."""
    return {
        "patches": sorted(sweep.patches),
        "seed": sweep.seed,  # of the choice of prompts
        "probes": {name: p.model_dump(mode="json") for name, p in sweep.probes.items()},
        "contents": dict(sorted(contents.items())),
    }


def arm_env(sweep: Sweep, arm: str, levels: Mapping[str, str]) -> dict[str, str]:
    """The environment that a sweep asks for: the engine's, the arm's, then the levels'."""
    merged = {**engine_of(sweep, arm).env, **sweep.arms[arm].env}
    for factor, level in levels.items():
        merged |= sweep.factors[factor][level].env
    return dict(sorted((merged | synthetic_env(sweep.arms[arm].simulate)).items()))


def digest(sweep: Sweep, contents: Mapping[str, str]) -> str:
    """Hash of a sweep's own words and of what it names.

    Until when the hosts are to be had, and which arm is watched over the nights, is not the
    question: with another deadline or canary the same run goes on.
    """
    words = sweep.model_dump(mode="json", exclude={"until": {"time", "zone"}, "canary": True})
    return hash_of({"sweep": words, "contents": dict(contents)})


def hash_of(value: object) -> str:
    """SHA-256 over canonical JSON, shortened to 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sorted_flags(flags: Mapping[str, FlagValue], engine: EngineKind) -> list[tuple[str, str]]:
    """One form for one command: order and aliases do not matter, ``false`` leaves a flag out.

    A switch that ``false`` turns off (vLLM's) stays, as it does in the command.
    """
    return sorted(
        (canonical(flag, engine), "" if value is True else repr(value))
        for flag, value in flags.items()
        if value is not False or is_switch(flag, engine)
    )


def _key(levels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(levels.items())


def blocks_of(trials: Sequence[Trial]) -> dict[int, list[Trial]]:
    """Trials by block, in order."""
    return {
        block: list(members)
        for block, members in itertools.groupby(trials, key=lambda trial: trial.block)
    }


def duplicate_intents(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    """Pairs of different arms or levels of one block that ask for exactly the same."""
    seen: dict[tuple[int, str], str] = {}
    pairs: list[tuple[str, str]] = []
    for trial in trials:
        first = seen.setdefault((trial.block, trial.intent), trial.id)
        if first != trial.id:
            pairs.append((first, trial.id))
    return pairs
