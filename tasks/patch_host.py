"""The stages that change the engine's source on the host, and put it back."""

from __future__ import annotations

import base64
import functools
import posixpath
from typing import TYPE_CHECKING, Any

from infra.errors import AgentRefusal
from tasks.record import PatchOutcome
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from configs.patch import Patch
    from infra.host_agent import HostAgent
    from tasks.patch_result import PatchResult
    from tasks.venue import Site

# In our folder on the host: the files that are to be put back (infra/agent/ledger.py).
_LEDGER = "patched.json"


@functools.lru_cache(maxsize=8)
def _applied(source: bytes | None, patch: Patch, version: str | None) -> PatchResult:
    """What a patch makes of a source; every trial finds the same one, and parsing it takes long."""
    from tasks.patching import apply_patch  # with libcst, which plan and resume need not wait for

    return apply_patch(source, patch, version)


def patch(site: Site, patches: Sequence[Patch]) -> tuple[PatchOutcome, ...]:
    """Applies every patch for the trial's engine; a file that has the methods is left alone.

    First puts back what an attempt that was cut off has left, so that a sweep without patches
    does not run on a patched engine, and one with patches reverts what it did not insert itself.

    Raises:
        StageFailedError: ``patch_refused``: a patch cannot be applied safely.
    """
    for said in put_back(site.agent):
        site.say(f"left by an earlier attempt: {said}")
    return tuple(_patch(site, one) for one in patches if one.package == site.engine.kind)


def _patch(site: Site, one: Patch) -> PatchOutcome:
    where = locate(site, one)
    source = base64.b64decode(where["source"]) if where["exists"] else None
    result = _applied(source, one, where["version"])
    outcome = _outcome(one, result, where)
    site.say(f"{one.name}: {result.action}: {result.message}")
    if result.action == "refuse":
        raise failed("patch", "patch_refused", f"{one.name}: {result.message}", (where["path"],))
    if result.action == "insert":
        _write(site, one, where["path"], result)
    return outcome


def locate(site: Site, one: Patch) -> dict[str, Any]:
    """The file on the host and its text, found without importing the engine (that pulls torch)."""
    answer = site.agent.call(
        "file", op="locate", python=site.python, package=one.package, relative=one.module
    )
    if not answer.get("path"):
        raise failed(
            "patch",
            "package_missing",
            f"{one.package} is not installed in {site.python} on {site.host.name}",
        )
    return answer


def _write(site: Site, one: Patch, path: str, result: PatchResult) -> None:
    content = posixpath.join(site.folder, f"patch-{one.name}.py")
    site.agent.put(result.new_source, content)
    try:
        site.agent.call(
            "file",
            op="write",
            path=path,
            content_path=content,
            expect_sha256=result.sha256_before,
            python=site.python,
            ledger=None if site.sweep.keep_patch else ledger_path(site.agent),
            answer_s=40.0,
        )
    except AgentRefusal as refusal:
        raise failed("patch", "patch_refused", f"{one.name}: {refusal}", (path,)) from refusal


def _outcome(one: Patch, result: PatchResult, where: dict[str, Any]) -> PatchOutcome:
    return PatchOutcome(
        name=one.name,
        action=result.action,
        reason=result.reason,
        path=where["path"],
        sha256_before=result.sha256_before if where["exists"] else None,
        sha256_after=result.sha256_after if where["exists"] else None,
        methods=result.inserted,
        diff=result.diff,
    )


def clear_pycache(site: Site, outcomes: Sequence[PatchOutcome]) -> str:
    """Removes the bytecode of every patched module.

    CPython compares time and size of the source; a copy that keeps both, or unchecked bytecode,
    would run the old text.
    """
    removed: list[str] = []
    for outcome in outcomes:
        answer = site.agent.call("file", op="clear_pycache", path=outcome.path)
        removed += answer["removed"]
    return f"{len(removed)} bytecode files removed"


def put_back(agent: HostAgent) -> tuple[str, ...]:
    """Puts back every file that a patch changed and that nobody asked to keep; safe to ask twice.

    Returns:
        One sentence for each file.
    """
    return reverted(agent.call("put-back", ledger=ledger_path(agent), answer_s=40.0)["files"])


def reverted(files: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """What the host says of the files that were to be put back, in a sentence for each.

    Raises:
        AgentRefusal: One could not be written; it stays on the list.
    """
    return tuple(_said(file) for file in files)


def _said(file: Mapping[str, Any]) -> str:
    path, error = file["path"], file["error"]
    if error == "changed":
        # By an upgrade of the engine, for example: its new file is not ours to replace.
        return f"{error}: {file['message']}"
    if error is not None:
        raise AgentRefusal(error, str(file["message"]), dict(file))
    return f"{path} put back" if file["restored"] else f"{path} was not changed"


def ledger_path(agent: HostAgent) -> str:
    """Where the list of changed files lies on the host."""
    return posixpath.join(agent.root, _LEDGER)
