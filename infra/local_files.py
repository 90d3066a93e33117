"""Model folders on this machine, read as the agent reads them on a host."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from infra.agent import content

_MOST_BYTES: Final = 16 << 20  # of a head, as on a host


class LocalFiles:
    """This machine's files."""

    def get(self, path: str) -> bytes:
        """A whole file.

        Raises:
            FileNotFoundError: There is none.
        """
        return Path(path).read_bytes()

    def head(self, path: str, count: int, offset: int = 0) -> tuple[bytes, int] | None:
        """The first bytes of a file (from an offset) and its size; None where there is none."""
        try:
            with Path(path).open("rb") as stream:
                stream.seek(offset)
                data = stream.read(min(count, _MOST_BYTES))
        except FileNotFoundError:
            return None
        return data, Path(path).stat().st_size

    def folder(self, path: str) -> tuple[dict[str, int], str | None] | None:
        """A model folder's files with their sizes, and its identity; None where there is none."""
        place = Path(path)
        if not place.is_dir():
            return None
        sizes = {file.name: file.stat().st_size for file in place.iterdir() if file.is_file()}
        return sizes, content.digest(path)
