"""The stage that looks at a drafter before a model is loaded: its config and weight headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.layers import arm_flags, named
from configs.speculation import drafter_of
from configs.speculation_flags import algorithm_of
from configs.synthetic import DRAFT_LOAD_FORMAT
from tasks.drafter_verdict import EngineFacts
from tasks.inspection import inspect_folder, target_facts
from tasks.launch import engine_env
from tasks.seen_files import SeenFiles
from tasks.venue import failed

if TYPE_CHECKING:
    from configs.names import FlagValue
    from tasks.prepare import Survey
    from tasks.seen_files import FilesSeen
    from tasks.venue import Site

_ALLOW_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_TRUE = frozenset({"1", "true"})


def check_drafter(site: Site, found: Survey, seen: FilesSeen) -> str:
    """Refuses a drafter that the engine would refuse, or load and never accept.

    Args:
        site: The trial's.
        found: Its survey; says whether the folders are those of an earlier trial.
        seen: What earlier trials of the sweep read there.

    Raises:
        StageFailedError: ``drafter_refused``, ``weights_unreadable``, ``draft_path_missing``.
    """
    speculation = site.sweep.arms[site.trial.arm].speculation
    folder = drafter_of(speculation)
    if folder is None:
        return "no drafter"
    path = site.agent.from_cwd(folder)
    known = {site.agent.from_cwd(name): digest for name, digest in found.identities.items()}
    files = SeenFiles(site.agent, known, seen)
    target = target_facts(files, site.agent.from_cwd(site.engine.model))
    flags = arm_flags(site.sweep, site.trial.arm, site.trial.levels)
    looked = inspect_folder(
        files,
        path,
        target,
        _engine(site, found, algorithm_of(speculation)),
        weights=flags.get(DRAFT_LOAD_FORMAT) != "dummy",
    )
    if looked is None or looked.verdict.reason == "config_missing":
        raise failed("check_drafter", "draft_path_missing", f"{path} holds no config.json")
    verdict = looked.verdict
    if not verdict.ok:
        raise failed(
            "check_drafter",
            "weights_unreadable" if verdict.reason == "weights_unreadable" else "drafter_refused",
            f"{folder}: {verdict.reason}",
            tuple(f"{p.reason}: {p.message}" for p in verdict.problems) + verdict.hints,
        )
    return "; ".join(verdict.warnings) or "drafter fits"


def _engine(site: Site, found: Survey, algorithm: str | None) -> EngineFacts:
    """The engine there, with the flags of this arm that the check needs."""
    flags = arm_flags(site.sweep, site.trial.arm, site.trial.levels)
    env = engine_env(site.sweep, site.host, site.trial.arm, site.trial.levels)
    kind = site.engine.kind
    context = flags.get(named("context-length", kind))
    return EngineFacts(
        framework=kind,
        version=found.versions.get(kind),
        speculative_algorithm=algorithm,
        context_length=context if isinstance(context, int) else None,
        dtype=_text(flags.get("dtype")),
        allow_longer_context=env.get(_ALLOW_LONGER, "").lower() in _TRUE,
    )


def _text(value: FlagValue | None) -> str | None:
    return value if isinstance(value, str) else None
