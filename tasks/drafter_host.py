"""The stage that looks at a drafter before a model is loaded: its config and weight headers."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from configs.layers import arm_flags, named
from configs.speculation import Eagle3, drafter_of
from tasks.drafter import check_drafter as judge_drafter
from tasks.drafter_config import read_target
from tasks.drafter_verdict import DrafterVerdict, EngineFacts, TargetFacts
from tasks.launch import engine_env
from tasks.safetensors_header import (
    NotSafetensorsError,
    Tensor,
    header_bytes,
    integers,
    read_header,
    read_index,
)
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.host_agent import HostAgent
    from tasks.prepare import Survey
    from tasks.venue import Site

_FIRST_BYTES = 65_536  # holds a drafter's whole header (some kilobytes): one trip, not two
_ALLOW_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def check_drafter(site: Site, found: Survey) -> str:
    """Refuses a drafter that the engine would refuse, or load and never accept.

    Raises:
        StageFailedError: ``drafter_refused``, ``draft_path_missing``.
    """
    speculation = site.sweep.arms[site.trial.arm].speculation
    folder = drafter_of(speculation)
    if folder is None or not isinstance(speculation, Eagle3):
        return "no drafter"
    path = site.agent.from_cwd(folder)
    config = read_optional(site.agent, posixpath.join(path, "config.json"))
    if config is None:
        raise failed("check_drafter", "draft_path_missing", f"{path} holds no config.json")
    verdict = inspect_drafter(
        site.agent,
        path,
        config,
        target_facts(read_optional(site.agent, _config_of(site))),
        EngineFacts(
            framework=site.engine.kind,
            version=found.versions.get(site.engine.kind),
            speculative_algorithm="EAGLE" if speculation.eagle2 else "EAGLE3",
            context_length=_context(site),
            allow_longer_context=_environment(site).get(_ALLOW_LONGER) == "1",
        ),
    )
    if not verdict.ok:
        raise failed(
            "check_drafter",
            "drafter_refused",
            f"{folder}: {verdict.reason}",
            tuple(f"{p.reason}: {p.message}" for p in verdict.problems) + verdict.hints,
        )
    return "; ".join(verdict.warnings) or "drafter fits"


def inspect_drafter(
    agent: HostAgent, path: str, config: bytes, target: TargetFacts, engine: EngineFacts
) -> DrafterVerdict:
    """Reads the headers of a drafter's weights (no weights but d2t) and judges them."""
    try:
        headers, d2t = read_weights(agent, path)
    except NotSafetensorsError as error:
        raise failed("check_drafter", "weights_unreadable", f"{path}: {error}") from error
    return judge_drafter(config, target, engine, headers, d2t)


def read_weights(
    agent: HostAgent, path: str
) -> tuple[dict[str, Tensor] | None, tuple[int, ...] | None]:
    """Tensor names, types and shapes of a checkpoint, and the values of d2t.

    None where the checkpoint is in another format (its names are then not known).
    """
    names = ["model.safetensors"]
    index = read_optional(agent, posixpath.join(path, "model.safetensors.index.json"))
    if index is not None:
        names = list(read_index(index))
    headers: dict[str, Tensor] = {}
    d2t: tuple[int, ...] | None = None
    for name in names:
        file = posixpath.join(path, name)
        first = agent.head(file, _FIRST_BYTES)
        if first is None:
            return None, None
        length = header_bytes(first[0])
        whole = first if length <= _FIRST_BYTES else agent.head(file, length)
        if whole is None:
            return None, None
        tensors = read_header(*whole)
        headers |= tensors
        if "d2t" in tensors:
            d2t = _values(agent, file, tensors["d2t"])
    return headers, d2t


def _values(agent: HostAgent, file: str, tensor: Tensor) -> tuple[int, ...] | None:
    raw = agent.head(file, tensor.end - tensor.start, tensor.start)
    return None if raw is None else integers(tensor, raw[0])


def target_facts(config: bytes | None) -> TargetFacts:
    """What the check needs of the target; nothing where its config.json cannot be read."""
    try:
        return read_target(config or b"{}")
    except ValueError:
        return TargetFacts()


def read_optional(agent: HostAgent, path: str) -> bytes | None:
    """A small file, or None where there is none."""
    try:
        return agent.get(path)
    except FileNotFoundError:
        return None


def _config_of(site: Site) -> str:
    return posixpath.join(site.agent.from_cwd(site.engine.model), "config.json")


def _context(site: Site) -> int | None:
    flag = named("context-length", site.engine.kind)
    value = arm_flags(site.sweep, site.trial.arm, site.trial.levels).get(flag)
    return value if isinstance(value, int) else None


def _environment(site: Site) -> Mapping[str, str]:
    return engine_env(site.sweep, site.host, site.trial.arm, site.trial.levels)
