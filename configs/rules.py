"""Checks that need the whole of a sweep: what one arm says against another, probes, host."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from configs.bench_serving import client_problems
from configs.cautions import warnings
from configs.cells import cell_problems, cells, crossing_size, is_restricted
from configs.fairness import LIMIT_WHEN_SPECULATING, unfairness
from configs.flags import canonical, flag_problems, whole_flag
from configs.host import Ssh
from configs.layers import (
    arm_flags,
    engine_kinds,
    engine_of,
    engines_by_place,
    gpus_by_way,
    levels_of,
    limit_flag,
    model_paths,
    named,
    place_of,
    places,
    single_changes,
)
from configs.nccl import value_problem
from configs.nodes import all_nodes, as_one, split_problem
from configs.nodes_rules import shared_problems
from configs.probe import clients_of, highest, own_of, rungs_of, streams_of
from configs.problems import Said
from configs.screening import screening_problems
from configs.secret_names import looks_secret, secret_reason
from configs.speculation import Off
from configs.speculation_rules import speculation_problems
from configs.synthetic_rules import synthetic_problems
from configs.vllm import ALWAYS as VLLM_ALWAYS
from configs.vllm_rules import vllm_on_host, vllm_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from configs.host import Host
    from configs.sweep import Sweep

__all__ = ["Said", "arm_flags", "host_problems", "looks_secret", "problems", "warnings"]

_LONGEST_ID: Final = 150  # of a trial, which becomes a folder
_MOST_TRIALS: Final = 20_000
_RANDOM_ELSEWHERE: Final = {"random-ids", "random_ids"}
# Set by the product for every engine: without them its processes could not be found again.
_OURS: Final = {"SPT_NOENV", "PYTHONUNBUFFERED"}


def problems(sweep: Sweep, *nodes: Host) -> list[Said]:
    """Everything that makes a sweep senseless or unfair; empty when it may run.

    Args:
        sweep: The question.
        nodes: The hosts of one of its places; none: it is held against itself alone.
    """
    host = as_one(nodes) if nodes else None
    names = list(_names(sweep))
    lost = [] if names else cell_problems(sweep)
    limited = is_restricted(sweep) and not names and not lost
    found = [
        *names,
        *lost,
        *_trial_ids(sweep, len(cells(sweep)) if limited else crossing_size(sweep)),
        *_flags(sweep),
        *vllm_problems(sweep),
        *_environments(sweep),
        *_paths(sweep),
        *_prompts(sweep),
        *_rungs(sweep),
        *client_problems(clients_of(sweep.probes), rungs_of(sweep.probes)),
        *screening_problems(sweep),
        *shared_problems(sweep),
    ]
    if not found:  # the rest relies on all of that
        found += [
            *unfairness(sweep),
            *speculation_problems(sweep),
            *synthetic_problems(sweep, host),
            *_limits(sweep),
            *_contexts(sweep),
            *(_on_host(sweep, nodes) if nodes else ()),
        ]
    return found


def host_problems(hosts: Sequence[Host]) -> list[Said]:
    """What is wrong with several hosts of one sweep together."""
    found = []
    for index, host in enumerate(hosts):
        for before, other in enumerate(hosts[:index]):
            if _address(host) == _address(other) is not None and host.port == other.port:
                port = f" and port {host.port}" if host.port else ""
                found.append(
                    Said(
                        f"hosts.{index}.port",
                        f"same host{port} as hosts.{before}: 2 engines cannot share it; name "
                        "the machine once, or give the engines ports of their own",
                    )
                )
    return found


def _address(host: Host) -> tuple[str, int, str] | None:
    connect = host.connect
    return (connect.host, connect.port, host.python) if isinstance(connect, Ssh) else None


def _names(sweep: Sweep) -> Iterator[Said]:
    if sweep.baseline not in sweep.arms:
        yield Said(
            "baseline",
            f"no arm is called {sweep.baseline!r}: name one of {', '.join(sweep.arms)}",
        )
    for factor, levels in sweep.factors.items():
        if not levels:
            yield Said(f"factors.{factor}", "has no levels: name at least one")
    for seen, group in (("hosts", all_nodes(sweep.hosts)), ("patches", sweep.patches)):
        for name, count in Counter(group).items():
            if count > 1:
                yield Said(seen, f"{name} stands twice: name it once")


def _trial_ids(sweep: Sweep, settings: int) -> Iterator[Said]:
    """A trial is called b01-<arm>-<level>...; two must not have one name, nor a too long one."""
    if settings * sweep.blocks > _MOST_TRIALS:
        yield Said(
            "factors",
            f"the sweep has {settings * sweep.blocks:,} trials, each a start of the engine: "
            f"{_MOST_TRIALS:,} at most; cross fewer factors",
        )
        return
    longest = max(map(len, sweep.arms))
    longest += sum(1 + max(map(len, levels), default=0) for levels in sweep.factors.values())
    if longest > _LONGEST_ID:
        yield Said(
            "arms",
            f"an arm and its levels have names of {longest} characters together, which would "
            f"name a folder: {_LONGEST_ID} at most, so shorten them",
        )
    names: set[str] = set(sweep.arms)
    for factor, levels in sweep.factors.items():
        joined = [f"{name}-{level}" for name in names for level in levels]
        twice = [name for name, count in Counter(joined).items() if count > 1]
        if twice:
            yield Said(
                f"factors.{factor}",
                f"two settings would both be called {min(twice)}: rename an arm or a level "
                "(their names are joined by '-')",
            )
            return
        names = set(joined)


def _flags(sweep: Sweep) -> Iterator[Said]:
    for place in places(sweep):
        found = (each for kind in place.engines for each in flag_problems(place.flags, kind))
        for flag, message in dict.fromkeys(found):
            yield Said(f"{place.where}.flags.{flag}", message)
    owner: dict[str, str] = {}
    for where, level in levels_of(sweep):
        # Two factors that set one thing: the order of the file would decide silently.
        factor = where.split(".")[1]
        kind = engine_kinds(sweep)[0]
        for thing in [canonical(flag, kind) for flag in level.flags] + list(level.env):
            first = owner.setdefault(thing, where)
            if not first.startswith(f"factors.{factor}."):
                other = first.split(".")[1]
                yield Said(where, f"sets {thing}, which factor {other} sets too: keep it in one")


def _environments(sweep: Sweep) -> Iterator[Said]:
    for place in places(sweep):
        for name, value in place.env.items():
            reason = secret_reason(name, value)
            if reason is None and name in _OURS:
                reason = "is set by us, to find the engine's processes again: leave it out"
            if reason is None:
                reason = value_problem(name, value, place.engines)
            if reason is None and name in VLLM_ALWAYS and "vllm" in place.engines:
                reason = "is set by us, to empty the prefix cache and read settings: leave it out"
            if reason is not None:
                yield Said(f"{place.where}.env.{name}", reason)


def _paths(sweep: Sweep) -> Iterator[Said]:
    targets = {engine.model for engine in engines_by_place(sweep).values()}
    for where, folder in model_paths(sweep).items():
        if folder.startswith("~"):
            yield Said(where, "~ is not expanded, since no shell runs it: write the whole path")
        elif folder != folder.strip():
            yield Said(where, f"{folder!r} begins or ends with a space: take it out")
        elif where.endswith(".drafter") and folder in targets:
            yield Said(where, "is the target itself: name the drafter's folder")


def _prompts(sweep: Sweep) -> Iterator[Said]:
    for name, probe in own_of(sweep.probes).items():
        if probe.prompts in _RANDOM_ELSEWHERE:
            yield Said(
                f"probes.{name}.prompts",
                f"{probe.prompts} is another program's word: write prompts: random and "
                "random: {tokens: 512}",
            )


def _rungs(sweep: Sweep) -> Iterator[Said]:
    """The rungs of a ladder of prompt lengths are named after their probe."""
    for name, probe in streams_of(sweep.probes).items():
        for taken in set(probe.rungs(name)) & (set(sweep.probes) - {name}):
            yield Said(
                f"probes.{name}.context_tokens",
                f"one of its lengths is measured as {taken}, and so is another probe: rename it",
            )


def _contexts(sweep: Sweep) -> Iterator[Said]:
    """Prompts that do not fit into the context that the server is started with."""
    said: dict[Said, None] = {}
    for levels, arms in single_changes(sweep):
        for arm in arms:
            kind = engine_of(sweep, arm).kind
            word = named("context-length", kind)
            limit = whole_flag(arm_flags(sweep, arm, levels), word, kind)
            for name, probe in streams_of(sweep.probes).items():
                prompt, answer = probe.prompt_tokens, probe.sampling.max_new_tokens
                if limit is not None and prompt and prompt + answer > limit:
                    key = "random.tokens" if probe.random else "context_tokens"
                    message = (
                        f"{prompt} tokens before the question and {answer} of an answer do not "
                        f"fit into {word} {limit}: lower them, or raise it"
                    )
                    said[Said(f"probes.{name}.{key}", message)] = None
    yield from said


def _limits(sweep: Sweep) -> Iterator[Said]:
    """The server's limit on running requests, where it is below what the probes ask for."""
    most = highest(sweep.probes)
    low: dict[tuple[str, int, str], list[str]] = {}
    for levels, arms in single_changes(sweep):
        for name in arms:
            arm, kind = sweep.arms[name], engine_of(sweep, name).kind
            flag = limit_flag(kind)
            limit, whose = whole_flag(arm_flags(sweep, name, levels), flag, kind), ""
            if limit is None and kind == "sglang" and not isinstance(arm.speculation, Off):
                limit, whose = LIMIT_WHEN_SPECULATING, ", SGLang's own when speculating"
            if limit is not None and limit < most:
                where = place_of(sweep, name, levels, flag)
                whom = low.setdefault((where, limit, whose), [])
                whom += [name] if name not in whom else []
    for (where, limit, whose), whom in low.items():
        yield Said(
            where,
            f"{limit} (for {', '.join(whom)}{whose}) is below the probes' concurrency {most}: "
            f"requests would queue; raise it to {most} or lower the concurrency",
        )


def _on_host(sweep: Sweep, nodes: Sequence[Host]) -> Iterator[Said]:
    host = as_one(nodes)
    for node in nodes:
        yield from vllm_on_host(sweep, node)
    seen: set[str] = set()
    for levels, arms in single_changes(sweep):
        for name in arms:
            kind = engine_of(sweep, name).kind
            sizes = gpus_by_way(arm_flags(sweep, name, levels), kind)
            ways = math.prod(sizes.values())
            largest = max(sizes, key=lambda flag: sizes[flag])
            where = place_of(sweep, name, levels, largest)
            if ways > host.gpus and where not in seen:
                seen.add(where)
                yield Said(
                    where,
                    f"asks for {ways} GPUs, host {host.name} has {host.gpus}: lower {largest}",
                )
            elif (split := split_problem(ways, nodes)) is not None and where not in seen:
                seen.add(where)
                yield Said(where, f"{split}: change {largest}")
