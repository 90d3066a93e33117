"""Model files that an earlier trial has read: asked for again only if the folder is another one."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tasks.model_files import Files

T = TypeVar("T")

FilesSeen = dict[tuple[object, ...], object]
"""What was read, by folder's identity and question; lives as long as a sweep."""


class SeenFiles:
    """Files of folders whose content is known by a digest; others are always asked for.

    A drafter is looked at before every trial, and is the same one in nearly all of them; each
    look costs half a dozen round trips.
    """

    def __init__(self, files: Files, identities: Mapping[str, str], seen: FilesSeen) -> None:
        """Remembers on top of ``files``.

        Args:
            files: Where the folders are.
            identities: Folder -> digest of its content at this moment; without what is unknown.
            seen: What earlier trials read; grows.
        """
        self._files, self._identities, self._seen = files, identities, seen

    def get(self, path: str, /) -> bytes:
        """See Files."""
        return self._once(posixpath.dirname(path), ("get", path), lambda: self._files.get(path))

    def head(self, path: str, count: int, offset: int = 0, /) -> tuple[bytes, int] | None:
        """See Files."""
        question = ("head", path, count, offset)
        asked = posixpath.dirname(path)
        return self._once(asked, question, lambda: self._files.head(path, count, offset))

    def folder(self, path: str, /) -> tuple[dict[str, int], str | None] | None:
        """See Files."""
        return self._once(path, ("folder", path), lambda: self._files.folder(path))

    def _once(self, folder: str, question: tuple[object, ...], ask: Callable[[], T]) -> T:
        identity = self._identities.get(folder)
        if identity is None:
            return ask()
        key = (identity, *question)
        if key not in self._seen:
            self._seen[key] = ask()
        return self._seen[key]  # type: ignore[return-value]  # the key says which question it was
