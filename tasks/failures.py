"""What went wrong with a trial: one failure value, and the table lookup that names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from configs.values import Value
from tasks.failure_table import FAILURES

# Needed at run time: pydantic reads the annotations of Failure.
from tasks.failure_table_form import FailureClass, Fixer, Retry

if TYPE_CHECKING:
    from tasks.failure_table_form import Signature

_BY_NAME = {row.name: row for row in FAILURES}
_ALIAS = re.compile(r"_[b-z]$")
_DRAFTER_FRAMES = re.compile(r"specul|draft|eagle")
_MAX_TEXT = 4000

ECHO = re.compile(
    r"Received sigquit from a child|SIGQUIT received|Engine core initialization failed"
    r"|Engine process failed to start|WorkerProc initialization failed due to an exception"
    r"|remote process exited or there was a network error|[Cc]onnection (?:was )?(?:closed|reset) by"
    r"|ConnectionResetError|ConnectionRefusedError|Broken ?[Pp]ipe|^EOFError|CancelledError"
    r"|NCCL communicator was aborted|Failed to recv, got 0 bytes|EngineDeadError|EngineCore encountered"
    r"|Request \S{1,200} failed \(engine dead\)"
    r"|check the stack trace above for the root cause"
)
"""Texts with which a process only says that another one failed."""


class Failure(Value):
    """One failure: its class, the evidence, and what the table says about it."""

    failure: str
    """The class's name, a row of the table."""
    cause: str
    """What happened, in one sentence."""
    remedy: str
    """What to do about it, in one sentence."""
    who: Fixer
    """Who can mend it."""
    retry: Retry
    """Whether a second try can help."""
    hints: tuple[str, ...] = ()
    """What to change, in imperatives."""
    stage: str | None = None
    """The stage in which it happened."""
    root_line: str | None = None
    """The line of the log that names the cause."""
    first_failing_rank: str | None = None
    """The rank that failed first, as the log names it; None where it is not said."""
    failing_ranks: tuple[str, ...] = ()
    """All ranks that reported a failure, in the log's order."""
    last_progress_at: str | None = None
    """The log's time of the last sign of work before it."""
    missing: tuple[str, ...] = ()
    """Methods that the target's class lacks."""
    target_class: str | None = None
    """The target's model class."""
    draft_class: str | None = None
    """The drafter's model class."""
    target_context: int | None = None
    """The context that was asked, in tokens."""
    draft_context: int | None = None
    """The context that the drafter was made for, in tokens."""
    widths: tuple[int, int] | None = None
    """Width of the hidden states that came, and that the layer takes."""
    backend: str | None = None
    """The attention backend that refused."""
    field: str | None = None
    """The argument, package or signal that is meant."""
    path: str | None = None
    """The path that is meant."""
    port: int | None = None
    """The TCP port that is meant."""
    process: str | None = None
    """The process that ended."""
    exit_code: int | None = None
    """Its exit code; negative for a signal."""
    gpu: int | None = None
    """The GPU's index."""
    min_free_gb: float | None = None
    """Free memory of the most crowded GPU, in GB as sglang counts."""
    local_free_gb: float | None = None
    """Free memory of the reporting rank's GPU, in GB as sglang counts."""
    free_gib: float | None = None
    """Free GPU memory in GiB."""
    total_gib: float | None = None
    """GPU memory in GiB."""
    wanted_gib: float | None = None
    """GPU memory in GiB that was wanted."""


class Scene(NamedTuple):
    """What is known of a start when something fails in it.

    Attributes:
        stage: The stage that the log had reached.
        framework: The engine, if known.
        frames: The traceback's frames, `path.py in function`, one a line.
        model_path: The target's path, if known.
        draft_path: The drafter's path; None if none was given or nothing is known.
        draft_path_known: The server's arguments were seen, so that None means "not given".
        broken_modules: Model modules that did not import (`kimi_k25`).
    """

    stage: str | None = None
    framework: str | None = None
    frames: str = ""
    model_path: str | None = None
    draft_path: str | None = None
    draft_path_known: bool = False
    broken_modules: tuple[str, ...] = ()


class Match(NamedTuple):
    """A class that fits a text, with the details that the text gives."""

    row: FailureClass
    signature: Signature | None
    details: dict[str, str]


def row(name: str) -> FailureClass:
    """Look a failure class up.

    Raises:
        KeyError: The table has no such class.
    """
    return _BY_NAME[name]


def failure_of(name: str, **details: object) -> Failure:
    """Make a failure that was seen elsewhere than in a log.

    Args:
        name: A class of the table.
        details: Further fields of the failure, such as `root_line` or `port`.

    Raises:
        KeyError: The table has no such class.
    """
    known = row(name)
    fields = {
        "failure": name,
        "cause": known.cause,
        "remedy": known.remedy,
        "who": known.who,
        "retry": known.retry,
    }
    return Failure.model_validate(fields | details)


def classify(text: str, scene: Scene, *, line: bool = False) -> Match | None:
    """Find the class that an exception's text, or a log record, belongs to.

    Args:
        text: `Class: message` with the lines that follow it, or a record's message.
        scene: What is known around it.
        line: The text is a log record's message, not the end of a traceback.
    """
    text = text[:_MAX_TEXT]
    where = "line" if line else "exception"
    for known in FAILURES:
        for signature in known.signatures:
            if signature.where != where:
                continue
            found = signature.pattern.match(text) if line else signature.pattern.search(text)
            if found is None:
                continue
            details = _details(found)
            if _fits(signature, scene, details):
                return _refine(Match(known, signature, details), text, scene)
    return None


def failure_from(match: Match, **fields: object) -> Failure:
    """Make the failure value of a classified text."""
    details: dict[str, object] = dict(match.details)
    if "missing" in details:
        details["missing"] = (details["missing"],)
    if "got" in details:
        details["widths"] = (details.pop("got"), details.pop("wanted"))
    signature = match.signature
    if signature is not None:
        details["hints"] = tuple(hint.format(**match.details) for hint in signature.hints)
        if signature.retry is not None:
            details["retry"] = signature.retry
        if signature.who is not None:
            details["who"] = signature.who
    return failure_of(match.row.name, **(details | fields))


def _details(found: re.Match[str]) -> dict[str, str]:
    return {
        _ALIAS.sub("", name): value
        for name, value in found.groupdict().items()
        if value is not None
    }


def _fits(signature: Signature, scene: Scene, details: dict[str, str]) -> bool:
    if signature.frames is not None and not signature.frames.search(scene.frames):
        return False
    if signature.framework is not None and signature.framework != scene.framework:
        return False
    if signature.stages and scene.stage not in signature.stages:
        return False
    if signature.drafter is not None and signature.drafter != _drafter_meant(scene, details):
        return False
    if signature.draft_path is not None:
        given = scene.draft_path is not None or not scene.draft_path_known
        return given == (signature.draft_path == "given")
    return True


def _drafter_meant(scene: Scene, details: dict[str, str]) -> bool:
    """Tell whether the drafter is meant: by its path, else by the frames, else by the stage."""
    path = details.get("path")
    if path is not None and path in (scene.model_path, scene.draft_path):
        return path == scene.draft_path
    if _DRAFTER_FRAMES.search(scene.frames):
        return True
    return scene.stage is not None and "draft" in scene.stage


def _refine(match: Match, text: str, scene: Scene) -> Match:
    """Tell apart what one text cannot: whose fault an absent class or a full GPU is."""
    name = match.row.name
    if name == "unsupported_architecture" and _module_broken(match.details, scene):
        return match._replace(row=row("patch_broken_module"))
    if name == "gpu_oom" and _held_by_others(text):
        return match._replace(row=row("gpus_occupied"), signature=None)
    return match


def _module_broken(details: dict[str, str], scene: Scene) -> bool:
    """Tell whether the architecture's own module failed to import (`kimi_k25` for `KimiK25…`)."""
    target = details.get("target_class", "").lower()
    return any(target.startswith(name.replace("_", "").lower()) for name in scene.broken_modules)


def _held_by_others(text: str) -> bool:
    """Read torch's list of processes on the GPU.

    torch writes "this process has" only where it found itself in NVML's list; a "Process N has"
    beside it is then somebody else (inside a container without the host's process ids, it is
    the engine itself, and "this process has" is missing).
    """
    if "this process has" not in text:
        return False
    held = [
        float(size) / (1024 if unit == "M" else 1)
        for size, unit in re.findall(
            r"Process \d+ has (\d{1,9}(?:\.\d{1,9})?) ([MG])iB memory in use", text
        )
    ]
    return sum(held) > 1.0


def failures_markdown() -> str:
    """Write docs/failures.md from the table."""
    lines = [
        "# Failure classes",
        "",
        "Generated from `tasks/failure_table*.py`; a test compares the two. A failed trial carries",
        "one of these names in its record, and in MLflow as the tag `failure`.",
        "",
        "*Who*: user = who wrote the sweep; host = who runs the machine; engine = the engine's",
        "authors; us = this program. *Again*: whether a second try can help.",
    ]
    for known in sorted(FAILURES, key=lambda entry: entry.name):
        lines += ["", f"## {known.name}", "", f"{known.cause} {known.remedy}", ""]
        lines.append(f"- who: {known.who}; again: {known.retry.replace('_', ' ')}")
        if known.citation:
            lines.append(f"- from: {known.citation}")
        lines += [f"- text: `` {entry.pattern.pattern} ``" for entry in known.signatures]
        if not known.signatures:
            lines.append("- not read from a log")
    return "\n".join(lines) + "\n"
