"""A drafter's folder held against a target and an engine, and what is said of it."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Literal, NamedTuple

from tasks.drafter import check_drafter
from tasks.drafter_config import read_target
from tasks.drafter_verdict import DrafterProblem, DrafterVerdict, TargetFacts
from tasks.model_files import CONFIG, Checkpoint, optional, read_checkpoint
from tasks.safetensors_header import NotSafetensorsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.drafter_verdict import EngineFacts
    from tasks.model_files import Files

EXIT_CODES = {"ok": 0, "findings": 1, "refuse": 2}
"""Of ``eagle3-sweep inspect``."""


class Inspection(NamedTuple):
    """What was read of a drafter's folder, and the verdict on it."""

    verdict: DrafterVerdict
    identity: str | None
    """Of the folder's content: the same that a trial's fingerprint holds."""

    @property
    def result(self) -> Literal["ok", "findings", "refuse"]:
        """The verdict in one word."""
        if not self.verdict.ok:
            return "refuse"
        return "findings" if self.verdict.warnings else "ok"


def inspect_folder(
    files: Files, path: str, target: TargetFacts, engine: EngineFacts, *, weights: bool = True
) -> Inspection | None:
    """Reads a drafter's config and headers and judges them; None where there is no such folder.

    Args:
        files: Where the folder is.
        path: The folder.
        target: The target.
        engine: The engine.
        weights: Whether its weights will be loaded; a dummy drafter is a config alone.
    """
    if not weights:
        listed = files.folder(path)
        config = optional(files, posixpath.join(path, CONFIG))
        verdict = check_drafter(config, target, engine)
        return None if listed is None else Inspection(verdict, listed[1])
    try:
        found = read_checkpoint(files, path)
    except NotSafetensorsError as error:
        # The rest of the config may still say which drafter it was meant to be.
        config, listed = optional(files, posixpath.join(path, CONFIG)), files.folder(path)
        unreadable = DrafterProblem(
            reason="weights_unreadable",
            message=str(error),
            hint="copy the file again: it is a pointer, a page or a piece of what it should be",
        )
        verdict = check_drafter(config, target, engine)
        return Inspection(_with(verdict, unreadable), listed[1] if listed else None)
    if found is None:
        return None
    verdict = check_drafter(found.config, target, engine, found.headers, found.d2t, t2d=found.t2d)
    return Inspection(_with(verdict, *_of_files(found)), found.identity)


def target_facts(files: Files, path: str) -> TargetFacts:
    """What the check needs of the target; nothing where its config.json cannot be read."""
    try:
        return read_target(optional(files, posixpath.join(path, CONFIG)) or b"{}")
    except ValueError:
        return TargetFacts()


def _of_files(found: Checkpoint) -> Iterator[DrafterProblem | str]:
    """What the folder's list of files says."""
    if not found.has_weights:
        named = f" (the index names {', '.join(found.missing)})" if found.missing else ""
        yield DrafterProblem(
            reason="weights_missing",
            message=f"the folder holds no weights{named}",
            hint="SGLang needs *.safetensors, *.bin or *.pt: copy the drafter again",
        )
    elif found.missing:
        yield (
            f"the index names {', '.join(found.missing)}, which the folder lacks: SGLang skips it "
            "without a word, and what it holds stays random"
        )


def _with(verdict: DrafterVerdict, *more: DrafterProblem | str) -> DrafterVerdict:
    """A verdict with further problems and warnings; what is wrong with the files comes first."""
    problems = tuple(item for item in more if isinstance(item, DrafterProblem)) + verdict.problems
    reasons = tuple(dict.fromkeys(problem.reason for problem in problems))
    return verdict.model_copy(
        update={
            "ok": not problems,
            "reason": reasons[0] if reasons else None,
            "also": reasons[1:],
            "problems": problems,
            "warnings": tuple(item for item in more if isinstance(item, str)) + verdict.warnings,
            "ok_for": verdict.ok_for if verdict.ok and not problems else (),
        }
    )


def inspection_text(path: str, found: Inspection, target: TargetFacts, engine: EngineFacts) -> str:
    """The result for people: the word first, then why and what to do, then what it rests on."""
    verdict = found.verdict
    lines = [f"{found.result}: {path}"]
    for problem in verdict.problems:
        lines.append(f"  {problem.reason}: {problem.message}")
        lines += [f"    what to do: {problem.hint}"] if problem.hint else []
    lines += [f"  finding: {warning}" for warning in verdict.warnings]
    lines += [f"  {name:<13} {value}" for name, value in _rows(found, target, engine) if value]
    return "\n".join(lines)


def _rows(
    found: Inspection, target: TargetFacts, engine: EngineFacts
) -> Iterator[tuple[str, str | None]]:
    verdict = found.verdict
    version = engine.version or "unknown version (rules of the newest known)"
    yield "engine", f"{engine.framework} {version}, {engine.speculative_algorithm or 'EAGLE3'}"
    yield "target", _target_line(target)
    if verdict.capture_layers is not None:
        layers = ", ".join(map(str, verdict.capture_layers)) or "the last one's output only"
        yield "captured", f"in front of layers {layers}"
    if verdict.num_aux is not None:
        fits = verdict.num_aux_by_weights
        said = f"{verdict.num_aux} hidden states by config"
        yield "fc", said if fits is None else f"{said}, {fits} by its weights"
    yield (
        "head",
        {
            "own": "its own",
            "target": "the target's (draft_vocab_size is null)",
            "embedding": "its own embedding (tied)",
            "missing": "none: it stays random",
            None: None,
        }[verdict.head],
    )
    if verdict.draft_context is not None:
        server = f", the server's {verdict.target_context}" if verdict.target_context else ""
        yield "context", f"{verdict.draft_context} tokens{server}"
    yield "identity", found.identity
    yield "config", verdict.config_sha256
    yield "headers", verdict.weights_sha256


def _target_line(target: TargetFacts) -> str:
    if target == TargetFacts():
        return "not given: nothing was held against one"
    known = [
        target.architecture or "unknown architecture",
        f"{target.layers or '?'} layers",
        f"hidden size {target.hidden_size or '?'}",
        f"vocabulary {target.vocab_size or '?'}",
    ]
    return ", ".join([*known, *([target.dtype] if target.dtype else [])])
