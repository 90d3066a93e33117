"""Checks that need the whole of a sweep: what one arm says against another, probes, host."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from configs.flags import canonical, flag_problems, unknown_flags
from configs.speculation import Off, drafter_of, speculation_flags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from configs.host import Host
    from configs.names import FlagValue
    from configs.sweep import Level, Sweep

# Where a word in a variable's name says that its value is a secret.
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "ACCESS_KEY", "CREDENTIAL")

# Written by SGLang itself, whatever the user sets (0.5.9 engine.py:806-819, 0.5.23 1878-1921).
OVERWRITTEN = {"CUDA_DEVICE_MAX_CONNECTIONS": "SGLang sets it to 8 always"}


class Said(NamedTuple):
    """A problem or a warning about one key of a sweep."""

    where: str
    message: str


def problems(sweep: Sweep, host: Host | None = None) -> list[Said]:
    """Everything that makes a sweep senseless or unfair; empty when it may run."""
    return [
        *_names(sweep),
        *_flags(sweep),
        *_environments(sweep),
        *_fairness(sweep),
        *(_on_host(sweep, host) if host else ()),
    ]


def warnings(sweep: Sweep) -> list[Said]:
    """What may run but should be known before the night is spent on it."""
    return [
        *_unknown_flags(sweep),
        *_graph_limits(sweep),
        *_acceptance(sweep),
        *_overwritten(sweep),
    ]


def arm_flags(sweep: Sweep, arm: str, levels: dict[str, str]) -> dict[str, FlagValue]:
    """The flags of one arm under these levels: the engine's, the arm's, then the levels'."""
    merged: dict[str, FlagValue] = {}
    layers = [sweep.engine.flags, sweep.arms[arm].flags]
    layers += [sweep.factors[factor][level].flags for factor, level in levels.items()]
    for layer in layers:
        for flag, value in layer.items():
            merged = {k: v for k, v in merged.items() if canonical(k) != canonical(flag)}
            merged[flag] = value
    return merged | speculation_flags(sweep.arms[arm].speculation)


def _levels(sweep: Sweep) -> Iterator[tuple[str, Level]]:
    for factor, levels in sweep.factors.items():
        for name, level in levels.items():
            yield f"factors.{factor}.{name}", level


def _names(sweep: Sweep) -> Iterator[Said]:
    if sweep.baseline not in sweep.arms:
        yield Said(
            "baseline", f"no arm is called {sweep.baseline!r}: name one of {_list(sweep.arms)}"
        )
    for factor, levels in sweep.factors.items():
        if not levels:
            yield Said(f"factors.{factor}", "has no levels: name at least one")
    for seen, group in (("hosts", sweep.hosts), ("patches", sweep.patches)):
        for name in sorted({n for n in group if group.count(n) > 1}):
            yield Said(seen, f"{name} stands twice: name it once")


def _flags(sweep: Sweep) -> Iterator[Said]:
    places = [("engine.flags", sweep.engine.flags)]
    places += [(f"arms.{name}.flags", arm.flags) for name, arm in sweep.arms.items()]
    places += [(f"{where}.flags", level.flags) for where, level in _levels(sweep)]
    for where, flags in places:
        for flag, message in flag_problems(flags):
            yield Said(f"{where}.{flag}", message)
    yield from _level_collisions(sweep)


def _level_collisions(sweep: Sweep) -> Iterator[Said]:
    """Two factors that set one thing: the order of the file would decide silently."""
    owner: dict[str, str] = {}
    for where, level in _levels(sweep):
        factor = where.split(".")[1]
        for thing in [canonical(flag) for flag in level.flags] + list(level.env):
            first = owner.setdefault(thing, factor)
            if first != factor:
                yield Said(where, f"sets {thing}, which factor {first} sets too: keep it in one")


def _environments(sweep: Sweep) -> Iterator[Said]:
    places = [("engine.env", sweep.engine.env)]
    places += [(f"arms.{name}.env", arm.env) for name, arm in sweep.arms.items()]
    places += [(f"{where}.env", level.env) for where, level in _levels(sweep)]
    for where, env in places:
        for name in env:
            if looks_secret(name):
                yield Said(
                    f"{where}.{name}",
                    "looks like a secret written into a file: name it under env_from, and set it "
                    "in the controller's environment",
                )


def looks_secret(name: str) -> bool:
    """Whether a variable's name says that its value must not be written anywhere."""
    return any(word in name.upper() for word in _SECRET_WORDS)


def _fairness(sweep: Sweep) -> Iterator[Said]:
    if sweep.baseline not in sweep.arms:
        return
    speculating = any(not isinstance(arm.speculation, Off) for arm in sweep.arms.values())
    first_levels = {
        factor: next(iter(levels)) for factor, levels in sweep.factors.items() if levels
    }
    most = max(max(probe.concurrency) for probe in sweep.probes.values())
    limits = {
        name: arm_flags(sweep, name, first_levels).get("max-running-requests")
        for name in sweep.arms
    }
    unset = [name for name, limit in limits.items() if limit is None]
    if unset and speculating:
        yield Said(
            "engine.flags.max-running-requests",
            f"is not set for {_list(unset)}: SGLang cuts it to 48 when speculating and not "
            f"otherwise, so the arms would not be comparable; set it for all, to at least {most}",
        )
    for limit in sorted({x for x in limits.values() if isinstance(x, int) and x < most}):
        low = [name for name, x in limits.items() if x == limit]
        yield Said(
            "engine.flags.max-running-requests",
            f"{limit} (for {_list(low)}) is below the probes' concurrency {most}: requests would "
            f"queue; raise it to {most} or lower the concurrency",
        )


def _on_host(sweep: Sweep, host: Host) -> Iterator[Said]:
    for name in sweep.arms:
        flags = arm_flags(sweep, name, {})
        ways = 1
        for flag in ("tp-size", "pp-size"):
            size = flags.get(flag, 1)
            ways *= size if isinstance(size, int) else 1
        if ways > host.gpus:
            yield Said(
                f"arms.{name}",
                f"asks for {ways} GPUs, host {host.name} has {host.gpus}: lower tp-size",
            )


def _unknown_flags(sweep: Sweep) -> Iterator[Said]:
    for name, arm in sweep.arms.items():
        for flag in unknown_flags({**sweep.engine.flags, **arm.flags}):
            yield Said(f"arms.{name}.flags.{flag}", "no SGLang release known here has this flag")


def _graph_limits(sweep: Sweep) -> Iterator[Said]:
    for name in sweep.arms:
        flags = arm_flags(sweep, name, {})
        limit = flags.get("cuda-graph-max-bs", flags.get("cuda-graph-max-bs-decode"))
        if not isinstance(limit, int):
            continue
        above = sorted({c for p in sweep.probes.values() for c in p.concurrency if c > limit})
        if above:
            yield Said(
                f"arms.{name}",
                f"concurrency {_list(map(str, above))} exceeds cuda-graph-max-bs {limit}: decode "
                "falls back to eager mode",
            )


def _acceptance(sweep: Sweep) -> Iterator[Said]:
    for name, probe in sweep.probes.items():
        tokens = probe.sampling.max_new_tokens
        if tokens < 40 and any(drafter_of(arm.speculation) for arm in sweep.arms.values()):
            yield Said(
                f"probes.{name}",
                f"{tokens} output tokens are fewer than 40 decode steps: acceptance at the start "
                "of an answer is not that of the rest",
            )


def _overwritten(sweep: Sweep) -> Iterator[Said]:
    for where, level in _levels(sweep):
        for name in level.env:
            if name in OVERWRITTEN:
                yield Said(f"{where}.env.{name}", f"has no effect: {OVERWRITTEN[name]}")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
