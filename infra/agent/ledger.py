"""The list of changed files in our folder: whoever comes next can put them back.

Written before a file is changed, so that it does not matter what ended the attempt that did it.
"""

from __future__ import annotations

from infra.agent import folders


def paths(ledger: str) -> list[str]:
    """The files that are to be put back; none where there is no list."""
    known = folders.read_object(ledger) or {}
    return [str(path) for path in known.get("paths") or []]


def note(ledger: str, path: str) -> None:
    """Adds a file to the list."""
    folders.write_json(ledger, {"paths": sorted({*paths(ledger), path})})
